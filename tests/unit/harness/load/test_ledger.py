"""The ledger: what is next, what was recorded, when a load is over."""

from __future__ import annotations

from harness.load.job import Stopped
from harness.load.ledger import Ledger
from harness.load.record import RequestRecord, Status
from scenarios.plan import Phase, Session
from tests.support.loads import chat_session, plan_of


def ledger_of(*sessions: Session) -> Ledger:
    """Open a ledger for a plan of these sessions."""
    return Ledger(plan_of(*sessions), refusals_before_lost=3)


def record(session: Session, status: Status, first_token_ns: int | None = None) -> RequestRecord:
    """Make a record of a request scheduled at 0."""
    name, phase = session.session_id, session.phase
    return RequestRecord(name, 0, phase, status, 0, 1, 9, first_token_ns=first_token_ns)


def test_the_load_is_complete_with_its_counted_sessions() -> None:
    """Fillers do not keep a load up, and nothing is handed out after its end."""
    warm, counted = chat_session("w", phase=Phase.WARMUP), chat_session("c")
    filler, spare = chat_session("f", phase=Phase.FILLER), chat_session("s", phase=Phase.FILLER)
    ledger = ledger_of(warm, counted, filler, spare)
    assert [ledger.take(), ledger.take(), ledger.take()] == [warm, counted, filler]
    ledger.end_session(warm)
    assert ledger.stopped is None
    ledger.end_session(counted)
    assert ledger.stopped is Stopped.COMPLETE
    assert ledger.take() is None


def test_a_plan_without_counted_sessions_is_played_to_its_end() -> None:
    """A warm-up alone is complete when all of it was played."""
    first, second = (chat_session(name, phase=Phase.WARMUP) for name in "ab")
    ledger = ledger_of(first, second)
    ledger.end_session(first)
    assert ledger.stopped is None
    ledger.end_session(second)
    assert ledger.stopped is Stopped.COMPLETE


def test_only_refusals_in_a_row_lose_the_engine() -> None:
    """A connection between refusals shows an engine that lives; the first reason to stop stands."""
    ledger = ledger_of(chat_session("c"))
    for note in (ledger.refused, ledger.refused, ledger.connected, ledger.refused, ledger.refused):
        note()
    assert ledger.stopped is None
    ledger.refused()
    ledger.stop(Stopped.LIMIT)
    assert ledger.stopped is Stopped.ENGINE_LOST


def test_every_turn_of_the_plan_is_accounted_for() -> None:
    """Each turn is ok, failed, timed out, cut or not played, by phase."""
    counted, filler = chat_session("c", 6), chat_session("f", 2, phase=Phase.FILLER)
    ledger = ledger_of(counted, filler)
    for status in (Status.OK, Status.OK, Status.FAILED, Status.TIMEOUT, Status.CUT):
        ledger.add(record(counted, status, 5_000_000))
    ledger.add(record(filler, Status.CUT))
    by_phase = {counts.phase: counts for counts in ledger.counts()}
    assert [by_phase[Phase.COUNTED].of(status) for status in Status] == [2, 1, 1, 1]
    assert (by_phase[Phase.COUNTED].sent, by_phase[Phase.COUNTED].not_played) == (5, 1)
    assert (by_phase[Phase.FILLER].sent, by_phase[Phase.FILLER].not_played) == (1, 1)
    progress = ledger.progress()
    assert (progress.done, progress.of, progress.failed, progress.ttft_p50_ms) == (5, 6, 2, 5.0)
