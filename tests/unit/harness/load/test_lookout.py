"""The lookout: what it says of a whole load, and when it ends one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.load.job import LoadJob, Stopped
from harness.load.lookout import Lookout
from harness.load.report import Answered, Report, Waiting
from scenarios.plan import Phase, Plan
from tests.support.loads import bare_job, chat_session, plan_of

S = 10**9
PLAN = plan_of(chat_session("a", 50), chat_session("b", 50))


def job(**changes: object) -> LoadJob:
    """Make a job that is watched for a service level and divergence as said."""
    return bare_job(**{"stop_when_diverging": False, **changes})


def answered(*ttft_s: float, first: int = 0) -> list[Answered]:
    """Make answers to requests that were due second after second."""
    return [Answered(1, (first + n) * S, round(seconds * S), "s") for n, seconds in enumerate(ttft_s)]


def test_progress_is_the_sum_over_processes() -> None:
    """Counts add up, and the median is of all first tokens."""
    lookout = Lookout(job(), PLAN, processes=2)
    lookout.hear(0, Report(done=3, failed=1, in_flight=4, answered=answered(0.1, 0.2)))
    lookout.hear(1, Report(done=5, failed=0, in_flight=2, answered=answered(0.3)))
    lookout.hear(0, Report(done=4, failed=1, in_flight=3))
    progress = lookout.progress(0)
    assert (progress.done, progress.of, progress.failed, progress.in_flight) == (9, 100, 1, 5)
    assert progress.ttft_p50_ms == 200.0


def test_nothing_is_known_before_the_first_report() -> None:
    """No median is no median of zero."""
    assert Lookout(job(), PLAN).progress(0).ttft_p50_ms is None


def test_silence_lasts_since_any_process_heard_a_token() -> None:
    """One that has nothing in flight may have heard it; without a request in flight there is no silence."""
    lookout = Lookout(job(), PLAN, processes=2)
    assert lookout.progress(9 * S).silent_s == 0.0
    lookout.hear(0, Report(in_flight=2, heard_ns=3 * S))
    lookout.hear(1, Report(in_flight=0, heard_ns=5 * S))
    assert lookout.progress(9 * S).silent_s == 4.0
    lookout.hear(0, Report(in_flight=0, heard_ns=3 * S))
    assert lookout.progress(9 * S).silent_s == 0.0


def test_a_load_is_complete_when_no_process_has_counted_sessions_left() -> None:
    """Fillers do not count, and one that has not reported yet may have everything left."""
    lookout = Lookout(job(), PLAN, processes=2)
    lookout.hear(0, Report(sessions_left=7, counted_left=0))
    assert lookout.why_stop(0) is None
    lookout.hear(1, Report(sessions_left=9, counted_left=1))
    assert lookout.why_stop(0) is None
    lookout.hear(1, Report(sessions_left=8, counted_left=0))
    assert lookout.why_stop(0) is Stopped.COMPLETE


def test_a_plan_without_counted_sessions_is_complete_when_all_have_ended() -> None:
    """Such as an empty one, from its start."""
    lookout = Lookout(job(), plan_of(chat_session("w", phase=Phase.WARMUP)))
    lookout.hear(0, Report(sessions_left=1))
    assert lookout.why_stop(0) is None
    lookout.hear(0, Report(sessions_left=0))
    assert lookout.why_stop(0) is Stopped.COMPLETE
    empty = Lookout(job(), Plan("test", 1, 1, ()))
    empty.hear(0, Report())
    assert empty.why_stop(0) is Stopped.COMPLETE


def test_what_one_process_has_met_ends_the_load_for_all() -> None:
    """An engine that one process has lost is lost."""
    lookout = Lookout(job(), PLAN, processes=2)
    lookout.hear(0, Report(counted_left=1))
    lookout.hear(1, Report(counted_left=1, stopped=Stopped.ENGINE_LOST))
    assert lookout.why_stop(0) is Stopped.ENGINE_LOST


def test_a_service_level_that_cannot_be_met_any_more_ends_the_load() -> None:
    """Of 100 planned turns two may miss: those that still wait count once they have waited too long."""
    lookout = Lookout(job(slo_ttft_s=1.0), PLAN)
    lookout.hear(0, Report(counted_left=2, answered=answered(1.0, 1.1, 0.2), waiting=[Waiting(0, 3 * S)]))
    assert lookout.why_stop(4 * S) is None
    assert lookout.why_stop(4 * S + 1) is Stopped.SLO_MISSED


def test_without_a_service_level_slow_requests_end_nothing() -> None:
    """It is another's business how slow an engine may be."""
    lookout = Lookout(job(), PLAN)
    lookout.hear(0, Report(counted_left=2, answered=answered(*[9.0] * 50)))
    assert lookout.why_stop(99 * S) is None


@given(st.integers(1, 400), st.floats(0.5, 2.0), st.floats(0.0, 0.03))
def test_the_load_is_ended_exactly_when_nothing_can_save_the_p99(turns: int, level_s: float, share: float) -> None:
    """With all other turns at no time at all, the P99 with one miss fewer would still have met the level."""
    missed = math.ceil(share * turns)
    lookout = Lookout(job(slo_ttft_s=level_s), plan_of(chat_session("a", turns)))
    lookout.hear(0, Report(counted_left=1, answered=answered(*[level_s + 1] * missed)))
    values = sorted([0.0] * (turns - missed) + [level_s + 1] * missed)
    lower = values[math.floor(0.99 * (turns - 1))]
    assert (lookout.why_stop(0) is Stopped.SLO_MISSED) is (lower > level_s)


@pytest.mark.parametrize(("watched", "expected"), [(True, Stopped.DIVERGED), (False, None)])
def test_a_load_that_only_gets_slower_is_ended_when_asked(watched: bool, expected: Stopped | None) -> None:
    """Wait after wait twice as long: seen from all processes together."""
    lookout = Lookout(job(stop_when_diverging=watched, diverging_least_s=10), PLAN, processes=2)
    said = []
    for second in range(200):
        lookout.hear(second % 2, Report(counted_left=1, answered=answered(0.1 * 1.05**second, first=second)))
        said.append(lookout.why_stop(second * S))
    assert next(filter(None, said), None) is expected
