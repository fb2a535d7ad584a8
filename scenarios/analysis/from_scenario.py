"""From a scenario to the stream that analysis counts on: its sessions are made and played on a clock of their own."""

from __future__ import annotations

from scenarios.analysis.from_plan import load_of_plan
from scenarios.analysis.load import Load
from scenarios.analysis.stream import MAX_BLOCKS
from scenarios.analysis.text import made_up_tokenizer
from scenarios.analysis.timing import Assumptions
from scenarios.making import make_plan
from scenarios.model import Scenario
from scenarios.sizing import sized


def load_of_scenario(
    scenario: Scenario,
    seed: int,
    *,
    page_tokens: int,
    assumed: Assumptions,
    device_tokens: int | None = None,
    max_blocks: int = MAX_BLOCKS,
) -> Load:
    """Make the sessions of `scenario` for `seed` and play them.

    Lengths, pauses and what is shared are those of the plan that a search with this seed plays. Its words are not, as
    no tokenizer is needed for this. `device_tokens` sizes a scenario that is meant for a multiple of the KV pool; raise
    ScenarioError when it is missing there.
    """
    tokenizer = made_up_tokenizer()
    if device_tokens is not None:
        scenario = sized(scenario, device_tokens, tokenizer)
    plan = make_plan(scenario, seed, tokenizer, "generate")
    return load_of_plan(
        plan,
        page_tokens=page_tokens,
        assumed=assumed,
        chat_template=scenario.api == "chat",
        max_blocks=max_blocks,
    )
