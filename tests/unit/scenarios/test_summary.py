"""A plan's figures, checked by hand on plans small enough to count."""

import pytest

from scenarios.catalogue import load_scenario
from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Plan, Session, Turn
from scenarios.summary import TEMPLATE_TOKENS, describe
from scenarios.synthetic import make_plan
from tests.support.bpe import prompt_tokenizer

TOKENIZER = prompt_tokenizer()


def _ids(tokens: int, value: int = 5) -> tuple[int, ...]:
    return (value,) * tokens


def _session(name: str, replies: bool, system: int | None = 1) -> Session:
    """Make two turns of 20 and 30 tokens after a system prompt of 100, with replies of 4 tokens."""
    reply = _ids(4) if replies else None
    turns = (
        Turn(0, 4, token_ids=_ids(20), reply_token_ids=reply),
        Turn(0, 4, token_ids=_ids(30), reply_token_ids=reply),
    )
    system_ids = None if system is None else _ids(100, system)
    return Session(name, Phase.COUNTED, turns, system_token_ids=system_ids)


def _plan(*sessions: Session) -> Plan:
    return Plan("mine", 2, 10, sessions)


def test_two_sessions_with_a_shared_system_prompt() -> None:
    """Prompts are 120 and 154 tokens; the second session finds the system prompt, each second turn its history."""
    summary = describe(_plan(_session("a", False), _session("b", False)), TOKENIZER)
    assert (summary.scenario, summary.seed, summary.concurrency) == ("mine", 2, 10)
    assert (summary.sessions, summary.requests) == (2, 4)
    assert (summary.mean_prompt_tokens, summary.max_prompt_tokens) == (137, 154)
    assert (summary.max_context_tokens, summary.mean_output_tokens) == (158, 4)
    # Own contexts are 24 and 58, mean 41; ten of them and the system prompt once.
    assert summary.working_set_tokens == 10 * 41 + 100
    # New: 100 system, 2 x (20 + 30) user tokens; and 4 replies of 4 were generated.
    assert summary.unique_tokens == 200 + 16
    assert summary.reusable_share == pytest.approx(1 - 200 / 548)


def test_scripted_replies_are_computed_in_the_next_prompt() -> None:
    """What the model said is not what joined the history, so 4 tokens of each second prompt are new."""
    summary = describe(_plan(_session("a", True), _session("b", True)), TOKENIZER)
    assert summary.reusable_share == pytest.approx(1 - 208 / 548)
    assert summary.unique_tokens == 208 + 16


def test_system_prompts_of_their_own() -> None:
    """A system prompt that only one session has is part of its context and saves nothing."""
    summary = describe(_plan(_session("a", False, 1), _session("b", False, 2)), TOKENIZER)
    assert summary.working_set_tokens == 10 * 141
    assert summary.unique_tokens == 300 + 16


def test_no_system_prompt() -> None:
    """Without a system prompt only the user's words count."""
    summary = describe(_plan(_session("a", False, None)), TOKENIZER)
    assert (summary.max_prompt_tokens, summary.working_set_tokens) == (54, 410)


def test_chat_messages_have_a_template() -> None:
    """In chat plans every message, also the model's own, costs the template's tokens too."""
    turns = (Turn(0, 4, text="answer"), Turn(0, 4, text="answer"))
    summary = describe(_plan(Session("a", Phase.COUNTED, turns, system_text="answer")), TOKENIZER)
    assert summary.max_prompt_tokens == 3 * TOKENIZER.count("answer") + 4 + 4 * TEMPLATE_TOKENS


def test_only_counted_sessions_are_described() -> None:
    """Warm-up and filler sessions are not part of the comparison; without a counted one there is nothing."""
    warmup = Session("w", Phase.WARMUP, (Turn(0, 4, token_ids=_ids(999)),))
    assert describe(_plan(warmup, _session("a", False)), TOKENIZER).max_prompt_tokens == 154
    with pytest.raises(ScenarioError, match="has no counted session"):
        describe(_plan(warmup), TOKENIZER)


@pytest.mark.parametrize(("name", "pool_tokens"), [("cpu-chat", 6144), ("cpu-smoke", 6000)])
def test_cpu_scenarios_overflow_the_device_and_fit_the_host(name: str, pool_tokens: int) -> None:
    """The live sessions need more than the device pool of the CPU engine and less than three times it."""
    summary = describe(make_plan(load_scenario(name), 1, TOKENIZER), TOKENIZER)
    assert 1.1 * pool_tokens < summary.working_set_tokens < 3 * pool_tokens
    assert summary.max_context_tokens < 2000


def test_the_control_has_nothing_to_reuse() -> None:
    """In low-sharing not one token could come from a cache."""
    scenario = load_scenario("low-sharing").scaled(counted_sessions=20)
    assert describe(make_plan(scenario, 1, TOKENIZER, "generate"), TOKENIZER).reusable_share == 0


@pytest.mark.parametrize("name", ["support-chat", "coding-agent"])
def test_gpu_scenarios_overflow_an_8b_model_on_80_gb(name: str) -> None:
    """The working set is between one and three times the 0.37 million tokens that the scenario's comment names."""
    summary = describe(make_plan(load_scenario(name), 1, TOKENIZER, "generate"), TOKENIZER)
    assert 370_000 < summary.working_set_tokens < 3 * 370_000
    assert summary.requests > 500
    assert summary.max_context_tokens < 40_960
    assert summary.reusable_share > 0.85
