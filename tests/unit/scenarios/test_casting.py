"""Open loads warm up, count, and stay under load until the last counted session can have ended; mixes keep shares."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.casting import OVERTIME
from scenarios.errors import ScenarioError
from scenarios.making import make_plan
from scenarios.model import Scenario, parse_scenario
from scenarios.plan import Phase, Plan, Session
from scenarios.shape import nominal_session_s
from tests.support.bpe import prompt_tokenizer

TOKENIZER = prompt_tokenizer()


def _scenario(**changes: Any) -> Scenario:
    data = {
        "schema_version": 1,
        "name": "mine",
        "api": "generate",
        "sessions": {"counted": 20},
        "arrivals": {"kind": "poisson", "rate_per_s": 2},
        "turns": {"kind": "uniform", "min": 2, "max": 5},
        "first_user_tokens": 4,
        "user_tokens": 4,
        "output_tokens": 5,
        "think_s": {"kind": "uniform", "min": 1, "max": 4},
    }
    return parse_scenario({**data, **changes}, where="test")


def _phase(plan: Plan, phase: Phase) -> list[Session]:
    return [session for session in plan.sessions if session.phase is phase]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), rate=st.floats(0.2, 20))
def test_an_open_load_has_three_phases(seed: int, rate: float) -> None:
    """Warm-up, then the counted ones, then fillers until each counted one could take twice its nominal length."""
    plan = make_plan(_scenario().opened(rate), seed, TOKENIZER)
    starts = [session.start_s for session in plan.sessions]
    warmup, counted, fillers = (_phase(plan, phase) for phase in (Phase.WARMUP, Phase.COUNTED, Phase.FILLER))
    assert (plan.concurrency, plan.rate_per_s, len(counted)) == (None, rate, 20)
    assert starts == sorted(starts)
    assert plan.sessions == (*warmup, *counted, *fillers)
    until = max(session.start_s + OVERTIME * nominal_session_s(session) for session in counted)
    assert all(session.start_s <= until + 0.001 for session in fillers)
    assert len({session.session_id for session in plan.sessions}) == len(plan.sessions)


def test_the_load_lasts_until_the_counted_sessions_end() -> None:
    """At 20 sessions a second the last filler comes within a second of the end of the time under load."""
    plan = make_plan(_scenario().opened(20.0), 1, TOKENIZER)
    counted = _phase(plan, Phase.COUNTED)
    until = max(session.start_s + OVERTIME * nominal_session_s(session) for session in counted)
    assert until - plan.sessions[-1].start_s < 1


def test_warm_up_lasts_until_nine_of_ten_sessions_would_have_ended() -> None:
    """By default the first counted session comes after the 90 % point of the sessions' nominal lengths."""
    plan = make_plan(_scenario(sessions={"counted": 400}).opened(20.0), 1, TOKENIZER)
    lengths = sorted(nominal_session_s(session) for session in plan.sessions)
    first = _phase(plan, Phase.COUNTED)[0].start_s
    assert lengths[int(0.85 * len(lengths))] < first < lengths[int(0.95 * len(lengths))]


def test_warm_up_can_be_set() -> None:
    """`warm_up_s` says when counting begins; 0 leaves no warm-up."""
    plan = make_plan(_scenario(sessions={"counted": 5, "warm_up_s": 0}), 1, TOKENIZER)
    assert [session.phase for session in plan.sessions][:6] == [Phase.COUNTED] * 5 + [Phase.FILLER]


def test_another_rate_plays_the_same_sessions() -> None:
    """A search for the highest rate compares like with like: counted sessions are the same, word for word."""
    slow, fast = (make_plan(_scenario().scaled(rate_per_s=rate), 1, TOKENIZER) for rate in (1.0, 8.0))
    assert [s.turns for s in _phase(slow, Phase.COUNTED)] == [s.turns for s in _phase(fast, Phase.COUNTED)]
    assert _phase(slow, Phase.COUNTED)[0].start_s != _phase(fast, Phase.COUNTED)[0].start_s


def test_recorded_arrivals_that_end_too_soon_are_refused() -> None:
    """Too few recorded arrivals leave too few to count, and the message says how many."""
    short = {"kind": "recorded", "times_s": [0.0, 1.0, 2.0]}
    with pytest.raises(ScenarioError) as caught:
        make_plan(_scenario(arrivals=short, sessions={"counted": 5, "warm_up_s": 0.5}), 1, TOKENIZER)
    assert str(caught.value) == (
        "scenario mine: only 2 sessions arrive after the warm-up of 0.5 s, and 5 are to be counted; count fewer, or "
        "set a shorter `sessions.warm_up_s`"
    )


def test_a_rate_that_no_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip of the pen in a rate is an error, not an endless plan."""
    monkeypatch.setattr("scenarios.casting.MOST_OPEN_SESSIONS", 50)
    with pytest.raises(ScenarioError, match=r"^scenario mine: more than 50 sessions would arrive; lower the rate$"):
        make_plan(_scenario().opened(1e6), 1, TOKENIZER)


def _mix(shares: list[float], **changes: Any) -> Scenario:
    part = _scenario(system_prompts={"tokens": 9}, documents={"count": 1, "tokens": 9, "per_session": 1}).model_dump()
    entries = [{"scenario": {**part, "name": f"kind{n}"}, "share": share} for n, share in enumerate(shares)]
    load = {"counted": 200, "concurrency": 4, "ramp_s": 0}
    data = {"schema_version": 1, "name": "mix", "api": "generate", "sessions": load, "mix": entries, **changes}
    return parse_scenario(data, where="test")


@settings(deadline=None, max_examples=15)
@given(shares=st.lists(st.floats(0.1, 10), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_a_mix_keeps_its_shares(shares: list[float], seed: int) -> None:
    """Of 200 sessions each kind has its share, to within 3 sessions, whatever the seed."""
    sessions = _phase(make_plan(_mix(shares), seed, TOKENIZER), Phase.COUNTED)
    kinds = Counter(session.session_id.partition(".")[0] for session in sessions)
    for number, share in enumerate(shares):
        assert kinds[f"kind{number}"] == pytest.approx(200 * share / sum(shares), abs=3)


def test_kinds_of_a_mix_share_nothing() -> None:
    """Two kinds that are equal but for their names have other ids, system prompts, documents and words."""
    plan = make_plan(_mix([1, 1]), 1, TOKENIZER)
    assert len({session.session_id for session in plan.sessions}) == len(plan.sessions)
    assert len({session.turns[0].token_ids for session in plan.sessions}) == len(plan.sessions)
    kinds = {
        (s.session_id.partition(".")[0], (s.system_token_ids or ())[2:], (s.turns[0].token_ids or ())[2:9])
        for s in plan.sessions
    }
    assert [len(set(column)) for column in zip(*kinds, strict=True)] == [2, 2, 2]
    assert len(kinds) == 2


def test_more_sessions_of_a_mix_change_no_earlier_ones() -> None:
    """Which session is of which kind does not depend on their number."""
    few, many = (make_plan(_mix([2, 1]).scaled(counted_sessions=n), 1, TOKENIZER) for n in (10, 30))
    assert _phase(many, Phase.COUNTED)[:10] == _phase(few, Phase.COUNTED)


def test_a_mix_can_be_open() -> None:
    """A mix has arrivals like any other scenario."""
    plan = make_plan(_mix([1, 2]).opened(3.0), 1, TOKENIZER)
    assert (plan.concurrency, plan.rate_per_s, len(_phase(plan, Phase.COUNTED))) == (None, 3.0, 200)
