"""The ledger: what is next, what was recorded, when a load is over."""

from __future__ import annotations

import json

from harness.load.exchange import Exchange
from harness.load.job import Stopped
from harness.load.ledger import Ledger
from harness.load.record import RequestRecord, Status
from harness.load.reply import Reply
from harness.load.report import Answered, Report, Waiting
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
    """Each turn is ok, failed, timed out, cut, cancelled or not played, by phase."""
    counted, filler = chat_session("c", 6), chat_session("f", 2, phase=Phase.FILLER)
    ledger = ledger_of(counted, filler)
    for status in Status:
        ledger.add(record(counted, status, 5_000_000))
    ledger.add(record(filler, Status.CUT))
    by_phase = {counts.phase: counts for counts in ledger.counts()}
    assert [by_phase[Phase.COUNTED].of(status) for status in Status] == [1] * len(Status)
    assert (by_phase[Phase.COUNTED].sent, by_phase[Phase.COUNTED].not_played) == (5, 1)
    assert (by_phase[Phase.FILLER].sent, by_phase[Phase.FILLER].not_played) == (1, 1)
    report = ledger.report()
    assert (report.done, report.failed) == (5, 2)


def exchange(session: Session, scheduled_ns: int) -> Exchange:
    """Make a request in flight."""
    return Exchange(session, 0, scheduled_ns, scheduled_ns, Reply())


def test_a_report_tells_first_tokens_once_and_who_still_waits() -> None:
    """A first token is told while its reply still runs, or after its end; never twice, and of counted turns only."""
    counted, filler = chat_session("c", 4), chat_session("f", phase=Phase.FILLER)
    ledger = ledger_of(counted, filler)
    quick, running, silent, failed = (exchange(counted, at_ns) for at_ns in (10, 20, 30, 40))
    for request in (quick, running, silent, failed, exchange(filler, 50)):
        ledger.begin(request)
    for request in (quick, running):
        request.reply.delta_times_ns.append(100)
    for request in (quick, failed):
        ledger.end(request)
    first, second = ledger.report(), ledger.report()
    assert {(a.scheduled_ns, a.ttft_ns) for a in first.answered} == {(10, 90), (20, 80)}
    assert [w.scheduled_ns for w in first.waiting] == [w.scheduled_ns for w in second.waiting] == [30]
    assert list(second.answered) == []
    ledger.end(running)
    assert list(ledger.report().answered) == []


def test_a_share_goes_on_until_it_is_told() -> None:
    """Others may still have counted sessions when this share has none left."""
    counted, filler = chat_session("c"), chat_session("f", phase=Phase.FILLER)
    ledger = Ledger(plan_of(counted, filler), refusals_before_lost=3, is_whole=False)
    ledger.take()
    ledger.end_session(counted)
    assert (ledger.stopped, ledger.counted_left, ledger.take()) == (None, 0, filler)
    ledger.stop(Stopped.COMPLETE)
    assert ledger.stopped is Stopped.COMPLETE


def test_a_report_survives_its_message() -> None:
    """What one process packs in plain values is what another unpacks."""
    whole = Report(3, 1, 2, 9, 4, Stopped.ENGINE_LOST, [Answered(1, 2, 3, "s")], [Waiting(4, 5)])
    assert Report.unpacked(json.loads(json.dumps(whole.packed()))) == whole
    running = Report(answered=[], waiting=[])
    assert Report.unpacked(running.packed()) == running


def test_a_token_of_any_request_is_a_sign_of_life() -> None:
    """The clock of silence starts with the first request in flight, and again after nothing was in flight."""
    warm, counted = chat_session("w", phase=Phase.WARMUP), chat_session("c")
    ledger = ledger_of(warm, counted)
    assert ledger.report().heard_ns == 0
    first, second = (Exchange(session, 0, 0, sent_ns, Reply()) for session, sent_ns in ((warm, 10), (counted, 20)))
    ledger.begin(first)
    ledger.begin(second)
    assert ledger.report().heard_ns == 10
    first.reply.delta_times_ns = [30, 40]
    assert ledger.report().heard_ns == 40
    ledger.end(first)
    assert ledger.report().heard_ns == 40
    ledger.end(second)  # a time-out: no sign of life
    assert ledger.report().heard_ns == 40
    ledger.begin(Exchange(counted, 1, 0, 90, Reply()))
    assert ledger.report().heard_ns == 90
