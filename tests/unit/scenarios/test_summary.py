"""A plan's figures, checked by hand on plans small enough to count."""

import pytest

from scenarios.catalogue import load_scenario
from scenarios.errors import ScenarioError
from scenarios.making import make_plan
from scenarios.model import parse_scenario
from scenarios.plan import Phase, Plan, Session, Turn
from scenarios.sizing import sized
from scenarios.summary import TEMPLATE_TOKENS, describe
from tests.support.bpe import prompt_tokenizer

TOKENIZER = prompt_tokenizer()


def _ids(tokens: int, value: int = 5) -> tuple[int, ...]:
    return (value,) * tokens


def _session(name: str, replies: bool, system: int | None = 1) -> Session:
    """Make two turns of 20 and 30 tokens after a system prompt of 100, with replies of 4 tokens."""
    reply = _ids(4) if replies else None
    own = ord(name)
    turns = (
        Turn(0, 4, token_ids=_ids(20, own), reply_token_ids=reply),
        Turn(0, 4, token_ids=_ids(30, own), reply_token_ids=reply),
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


def test_open_plans_have_live_sessions_by_littles_law() -> None:
    """Half a session a second, each about 10.58 s and one of 0.58 s: 0.5 x their mean are alive."""
    long = Session("a", Phase.COUNTED, (Turn(0, 4, token_ids=_ids(9, 1)), Turn(9.42, 4, token_ids=_ids(9, 1))))
    short = Session("b", Phase.COUNTED, (Turn(0, 4, token_ids=_ids(9, 2)),), start_s=2.0)
    summary = describe(Plan("mine", 2, None, (long, short), 0.5), TOKENIZER)
    assert (summary.concurrency, summary.rate_per_s) == (None, 0.5)
    assert summary.live_sessions == pytest.approx(0.5 * (10.58 + 0.58) / 2)


def test_branches_are_counted_once() -> None:
    """A turn that is asked again is wholly known; an edited one is new from where its words differ."""
    turns = (
        Turn(0, 4, token_ids=_ids(20)),
        Turn(1, 4, token_ids=_ids(20), after=-1),
        Turn(1, 4, token_ids=_ids(20)[:15] + _ids(5, 6), after=-1),
        Turn(1, 4, token_ids=_ids(7, 8)),
    )
    summary = describe(_plan(Session("a", Phase.COUNTED, turns)), TOKENIZER)
    assert summary.max_prompt_tokens == 20 + 4 + 7
    assert summary.unique_tokens == (20 + 5 + 7) + 4 * 4
    assert summary.reusable_share == pytest.approx(1 - 32 / (20 * 3 + 31))


def test_what_a_session_shares_with_itself_is_not_shared() -> None:
    """Two branches of one session have 50 tokens in common, and only 20 of them with another session."""
    begins = _ids(20, 1)
    branches = (
        Turn(0, 4, token_ids=begins + _ids(30, 2) + _ids(5, 3)),
        Turn(1, 4, token_ids=begins + _ids(30, 2) + _ids(5, 4), after=-1),
    )
    other = Session("b", Phase.COUNTED, (Turn(0, 4, token_ids=begins + _ids(9, 9)),))
    summary = describe(_plan(Session("a", Phase.COUNTED, branches), other), TOKENIZER)
    assert summary.shared_tokens == 20
    assert summary.tokens_per_session == pytest.approx((39 + 39 + 13) / 3)


def test_shared_documents_are_no_sessions_own() -> None:
    """Two sessions with the same 60 tokens first hold them once; a third one's are its own."""
    sessions = [
        Session(name, Phase.COUNTED, (Turn(0, 4, token_ids=_ids(60, document) + _ids(10, ord(name))),))
        for name, document in (("a", 1), ("b", 1), ("c", 2))
    ]
    summary = describe(_plan(*sessions), TOKENIZER)
    assert summary.shared_tokens == 60
    assert summary.tokens_per_session == pytest.approx((14 + 14 + 74) / 3)
    assert summary.working_set_tokens == 10 * 34 + 60


def test_the_working_set_is_sized_to_the_engine() -> None:
    """The sessions of a sized scenario fill the multiple that was asked for, to within a tenth; others stay."""
    scenario = load_scenario("cpu-chat")
    data = scenario.model_dump(mode="json")
    data["sessions"] = {"working_set": "2.5x device KV", "ramp_s": 6, "counted": 60}
    wanted = parse_scenario(data, where="x")
    resolved = sized(wanted, 6144, TOKENIZER)
    summary = describe(make_plan(resolved, 1, TOKENIZER, "generate"), TOKENIZER)
    assert summary.working_set_tokens == pytest.approx(2.5 * 6144, rel=0.1)
    assert resolved.sessions.working_set is None
    assert sized(scenario, 6144, TOKENIZER) == scenario
    with pytest.raises(ScenarioError) as caught:
        make_plan(wanted, 1, TOKENIZER)
    assert str(caught.value) == (
        "the scenario cpu-chat fills 2.5x device KV, and the size of the engine's KV pool is not known yet; give "
        "--device-kv-tokens N (the engine logs it as max_total_num_tokens) or --concurrency"
    )
    with pytest.raises(
        ScenarioError, match=r"^scenario cpu-chat: 2.5x device KV is less than one session in a KV pool"
    ):
        sized(wanted, 200, TOKENIZER)
    assert wanted.scaled(concurrency=3).sessions.concurrency == 3


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("agentic-tools", 370_000, 740_000),
        ("code-completion", 370_000, 740_000),
        ("few-shot-classify", 370_000, 740_000),
        ("long-system-prompt", 370_000, 740_000),
        ("mixed-night", 370_000, 1_110_000),
        ("rag-multi-doc", 370_000, 740_000),
    ],
)
def test_new_gpu_scenarios_overflow_an_8b_model_on_80_gb(name: str, least: int, most: int) -> None:
    """The working set is above the 0.37 million tokens of an 8B model on 80 GB, and a host pool can hold it."""
    summary = describe(make_plan(load_scenario(name), 1, TOKENIZER, "generate"), TOKENIZER)
    assert least < summary.working_set_tokens < most
    assert summary.requests > 500
    assert summary.max_context_tokens < 40_960
    assert summary.reusable_share > 0.8
