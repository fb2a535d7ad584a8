"""How many sessions fill a multiple of the engine's KV pool."""

from __future__ import annotations

from scenarios.making import make_plan
from scenarios.model import Scenario
from scenarios.summary import describe
from scenarios.tokenizer import PromptTokenizer

_SEED = 0
"""Sizes must not differ between the seeds of one study."""
_SAMPLED_SESSIONS = 200


def sized(scenario: Scenario, device_pool_tokens: int, tokenizer: PromptTokenizer) -> Scenario:
    """Return `scenario` with the concurrency that its `working_set` asks of an engine; others as they are.

    `device_pool_tokens` is the engine's KV pool, its `max_total_num_tokens`. Raise ScenarioError when the working set
    is less than one session.
    """
    if scenario.sessions.working_set is None:
        return scenario
    counted = min(scenario.sessions.counted or _SAMPLED_SESSIONS, _SAMPLED_SESSIONS)
    sample = scenario.scaled(concurrency=1, counted_sessions=counted)
    summary = describe(make_plan(sample, _SEED, tokenizer, "generate"), tokenizer)
    return scenario.sized(device_pool_tokens, summary.tokens_per_session, summary.shared_tokens)
