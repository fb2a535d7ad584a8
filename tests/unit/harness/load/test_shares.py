"""A load dealt to several processes, and put together again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import LoadError
from harness.load.job import ClientHealth, PhaseCounts
from harness.load.record import RequestRecord, Status
from harness.load.shares import Played, add_counts, merge, processes_of, share_of, write_share
from scenarios.plan import Phase, Plan
from tests.support.loads import chat_session

HEALTH = ClientHealth(cpu_fraction=0.1, lag_p99_ms=1, lag_max_ms=2, gc_pause_ms=0)


def plan(slots: int | None, warmups: int, counted: int, fillers: int) -> Plan:
    """Make a plan of named sessions."""
    kinds = ((Phase.WARMUP, warmups), (Phase.COUNTED, counted), (Phase.FILLER, fillers))
    sessions = [chat_session(f"{phase}{n}", phase=phase) for phase, count in kinds for n in range(count)]
    return Plan("test", 1, slots, tuple(sessions))


plans = st.builds(plan, st.none() | st.integers(1, 9), *[st.integers(0, 20)] * 3)


@given(plans, st.integers(1, 5))
def test_every_session_is_dealt_once_and_whole(whole: Plan, wanted: int) -> None:
    """Shares are disjoint, complete, and keep the order of the plan; slots add up."""
    processes = processes_of(whole, wanted)
    shares = [share_of(whole, index, processes) for index in range(processes)]
    dealt = [session for share in shares for session in share.sessions]
    assert sorted(s.session_id for s in dealt) == sorted(s.session_id for s in whole.sessions)
    for share in shares:
        places = [whole.sessions.index(session) for session in share.sessions]
        assert places == sorted(places)
    if whole.concurrency is not None:
        slots = [share.concurrency or 0 for share in shares]
        assert sum(slots) == whole.concurrency
        assert max(slots) - min(slots) <= 1
        assert min(slots) >= 1


def test_sessions_follow_the_slots() -> None:
    """Of three slots for two processes the one with two slots gets two thirds of every phase, openings first."""
    shares = [share_of(plan(3, 3, 12, 6), index, 2) for index in range(2)]
    assert [share.concurrency for share in shares] == [2, 1]
    counts = [[sum(s.phase is phase for s in share.sessions) for phase in Phase] for share in shares]
    assert counts == [[2, 8, 4], [1, 4, 2]]


@pytest.mark.parametrize(("slots", "sessions", "wanted", "expected"), [(1, 9, 4, 1), (3, 9, 2, 2), (None, 3, 8, 3)])
def test_a_process_without_a_user_is_not_started(slots: int | None, sessions: int, wanted: int, expected: int) -> None:
    """There are never more processes than users; an empty plan has one."""
    assert processes_of(plan(slots, 0, sessions, 0), wanted) == expected
    assert processes_of(plan(None, 0, 0, 0), wanted) == 1


def record(name: str, end_ns: int) -> RequestRecord:
    """Make a record that ended then."""
    return RequestRecord(name, 0, Phase.COUNTED, Status.OK, 0, 1, end_ns, first_token_ns=2, error=None)


def played(ok: int) -> Played:
    """Say what a process counted."""
    counts = tuple(PhaseCounts(phase=phase, ok=ok if phase is Phase.COUNTED else 0, not_played=1) for phase in Phase)
    return Played(ended_ns=9, counts=counts, client=HEALTH, locust_requests=ok)


def test_records_are_put_together_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    """Not an average but every record, with its type; the parts are gone."""
    write_share(tmp_path, 0, played(2), [record("a", 3), record("b", 9)])
    write_share(tmp_path, 1, played(1), [record("c", 5)])
    write_share(tmp_path, 2, played(0), [])
    shares, records = merge(tmp_path, 3)
    assert list(records["session_id"]) == ["a", "c", "b"]
    assert records["end_ns"].dtype == pd.Int64Dtype()
    assert [share.locust_requests for share in shares] == [2, 1, 0]
    assert list(tmp_path.iterdir()) == []
    total = add_counts([share.counts for share in shares])
    assert [(c.phase, c.ok, c.not_played) for c in total] == [
        (Phase.WARMUP, 0, 3),
        (Phase.COUNTED, 3, 3),
        (Phase.FILLER, 0, 3),
    ]


@pytest.mark.parametrize(("count", "names"), [(3, "ab"), (1, "ab"), (2, "aa")])
def test_records_that_do_not_add_up_are_no_load(tmp_path: Path, count: int, names: str) -> None:
    """One too few, one too many, or one twice: nothing is merged, and the parts are kept."""
    write_share(tmp_path, 0, played(count), [record(name, 3) for name in names])
    with pytest.raises(LoadError, match=f"counted {count} requests, but wrote 2 records"):
        merge(tmp_path, 1)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_process_that_left_nothing_is_named(tmp_path: Path) -> None:
    """A missing part is a LoadError with its path."""
    write_share(tmp_path, 0, played(0), [])
    with pytest.raises(LoadError, match=r"load\.1\.json: a load process left no result"):
        merge(tmp_path, 2)
