"""What a plan amounts to before anything is run: requests, prompt lengths, and the tokens that stay alive."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean

from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Plan, Session
from scenarios.tokenizer import PromptTokenizer

TEMPLATE_TOKENS = 5
"""What a chat template adds to a message, about; token plans have no template."""


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The counted sessions of a plan in figures. In chat plans the template's tokens are an estimate."""

    scenario: str
    seed: int
    concurrency: int
    sessions: int
    requests: int
    mean_prompt_tokens: float
    max_prompt_tokens: int
    max_context_tokens: int
    """The longest prompt with its reply: the context length that the engine must have."""
    mean_output_tokens: float
    working_set_tokens: int
    """KV that the live sessions hold at a time: concurrency x mean context, shared system prompts once."""
    unique_tokens: int
    """KV of all counted sessions: what a cache would have to hold to lose nothing."""
    reusable_share: float
    """Share of the prompt tokens that an endless cache would save."""


@dataclass(frozen=True, slots=True)
class _Lengths:
    """One session in tokens."""

    system: int
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    fresh: tuple[int, ...]
    """Of each prompt, what the session has not sent or received before."""


def describe(plan: Plan, tokenizer: PromptTokenizer) -> PlanSummary:
    """Measure the counted sessions of `plan`; raise ScenarioError when it has none."""
    counted = [session for session in plan.sessions if session.phase is Phase.COUNTED]
    if not counted:
        raise ScenarioError(f"the plan of {plan.scenario} has no counted session; make it again")
    lengths = [_measure(session, tokenizer) for session in counted]
    systems = [(session.system_text, session.system_token_ids) for session in counted]
    uses = Counter(systems)
    first_with = {system: index for index, system in reversed(list(enumerate(systems)))}

    prompts = [tokens for session in lengths for tokens in session.prompts]
    outputs = [tokens for session in lengths for tokens in session.outputs]
    known_systems = sum(session.system for index, session in enumerate(lengths) if first_with[systems[index]] != index)
    shared_systems = sum(lengths[index].system for system, index in first_with.items() if uses[system] > 1)
    fresh = sum(sum(session.fresh) for session in lengths) - known_systems
    own_contexts = [
        prompt + output - (session.system if uses[system] > 1 else 0)
        for session, system in zip(lengths, systems, strict=True)
        for prompt, output in zip(session.prompts, session.outputs, strict=True)
    ]
    return PlanSummary(
        scenario=plan.scenario,
        seed=plan.seed,
        concurrency=plan.slots,
        sessions=len(counted),
        requests=len(prompts),
        mean_prompt_tokens=fmean(prompts),
        max_prompt_tokens=max(prompts),
        max_context_tokens=max(map(sum, zip(prompts, outputs, strict=True))),
        mean_output_tokens=fmean(outputs),
        working_set_tokens=round(plan.slots * fmean(own_contexts)) + shared_systems,
        unique_tokens=fresh + sum(outputs),
        reusable_share=1 - fresh / sum(prompts),
    )


def _measure(session: Session, tokenizer: PromptTokenizer) -> _Lengths:
    def message(text: str | None, token_ids: tuple[int, ...] | None) -> int:
        if token_ids is not None:
            return len(token_ids)
        return 0 if text is None else tokenizer.count(text) + TEMPLATE_TOKENS

    system = message(session.system_text, session.system_token_ids)
    prompts, fresh, history, known = [], [], system, 0
    for turn in session.turns:
        history += message(turn.text, turn.token_ids)
        prompts.append(history)
        fresh.append(history - known)
        known = history
        scripted = message(turn.reply_text, turn.reply_token_ids)
        history += scripted or turn.max_output_tokens + (TEMPLATE_TOKENS if turn.text is not None else 0)
        known += 0 if scripted else turn.max_output_tokens
    return _Lengths(system, tuple(prompts), tuple(t.max_output_tokens for t in session.turns), tuple(fresh))
