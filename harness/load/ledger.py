"""What one process has done of a load so far: which session is next, what was recorded, and whether it is over."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from harness.load.job import PhaseCounts, Stopped
from harness.load.record import RequestRecord, Status
from harness.load.report import Answered, Report, Waiting
from scenarios.plan import Phase, Plan, Session

if TYPE_CHECKING:
    from harness.load.exchange import Exchange


class Ledger:
    """Shared by all users of a process; nothing in it waits.

    One that keeps the whole plan ends the load with its last counted session. One that keeps a share of it goes on
    until it is told to stop, as others may still have counted sessions.
    """

    def __init__(self, plan: Plan, *, refusals_before_lost: int, is_whole: bool = True) -> None:
        self.started_ns = 0
        """When the load started; sessions arrive relative to it."""
        self.stopped: Stopped | None = None
        self.records: list[RequestRecord] = []
        self.in_flight = 0
        self.sessions_left = len(plan.sessions)
        self.counted_left = sum(s.phase is Phase.COUNTED for s in plan.sessions)
        self._plan = plan
        self._is_whole = is_whole
        self._has_counted = self.counted_left > 0
        self._waiting = deque(plan.sessions)
        self._refusals_before_lost = refusals_before_lost
        self._refusals_in_a_row = 0
        self._counted_status: Counter[Status] = Counter()
        self._running: dict[int, Exchange] = {}
        self._heard_ns = 0
        self._unanswered: dict[int, Exchange] = {}
        self._answered: list[Answered] = []

    def take(self) -> Session | None:
        """Hand out the next session in plan order; None when there is none left or the load is over."""
        return self._waiting.popleft() if self._waiting and self.stopped is None else None

    def end_session(self, session: Session) -> None:
        """Note that `session` has ended, by its last turn or by a failed one."""
        self.sessions_left -= 1
        if session.phase is Phase.COUNTED:
            self.counted_left -= 1
        over = self.sessions_left == 0 or (self._has_counted and self.counted_left == 0)
        if self._is_whole and over:
            self.stop(Stopped.COMPLETE)

    def begin(self, exchange: Exchange) -> None:
        """Note that a request is about to be sent."""
        if not self._running:
            self._heard_ns = max(self._heard_ns, exchange.sent_ns)
        self._running[id(exchange)] = exchange
        if exchange.session.phase is Phase.COUNTED:
            self._unanswered[id(exchange)] = exchange

    def end(self, exchange: Exchange) -> None:
        """Note that a request has ended in any way."""
        self._heard_ns = max(self._heard_ns, _last_token_ns(exchange))
        self._running.pop(id(exchange), None)
        if self._unanswered.pop(id(exchange), None) is not None and (answered := _answered(exchange)):
            self._answered.append(answered)

    def add(self, record: RequestRecord) -> None:
        """Keep `record`."""
        self.records.append(record)
        if record.phase is Phase.COUNTED:
            self._counted_status[record.status] += 1

    def connected(self) -> None:
        """Note that the engine accepted a connection."""
        self._refusals_in_a_row = 0

    def refused(self) -> None:
        """Note that nothing listens; the engine is lost when that happens several times in a row."""
        self._refusals_in_a_row += 1
        if self._refusals_in_a_row >= self._refusals_before_lost:
            self.stop(Stopped.ENGINE_LOST)

    def stop(self, why: Stopped) -> None:
        """End the load; the first reason stands."""
        if self.stopped is None:
            self.stopped = why

    def report(self) -> Report:
        """Say where the load is, and what has come since the last report."""
        waiting = self._note_first_tokens()
        answered, self._answered = self._answered, []
        done = self._counted_status
        return Report(
            done=done.total(),
            failed=done[Status.FAILED] + done[Status.TIMEOUT],
            in_flight=self.in_flight,
            heard_ns=self._heard(),
            sessions_left=self.sessions_left,
            counted_left=self.counted_left,
            stopped=self.stopped,
            answered=answered,
            waiting=waiting,
        )

    def counts(self) -> tuple[PhaseCounts, ...]:
        """Count what became of every turn of the plan."""
        return tuple(self._counts(phase) for phase in Phase)

    def _heard(self) -> int:
        """When a token came last to any request, or, if later, when requests began to be in flight again."""
        return max([self._heard_ns, *map(_last_token_ns, self._running.values())])

    def _note_first_tokens(self) -> list[Waiting]:
        """Note which requests that still run have their first token, and return those that wait for it."""
        waiting = []
        for key, exchange in list(self._unanswered.items()):
            if answered := _answered(exchange):
                self._answered.append(answered)
                del self._unanswered[key]
            else:
                waiting.append(Waiting(exchange.turn, exchange.scheduled_ns))
        return waiting

    def _counts(self, phase: Phase) -> PhaseCounts:
        planned = sum(len(s.turns) for s in self._plan.sessions if s.phase is phase)
        by_status = Counter(r.status for r in self.records if r.phase is phase)
        return PhaseCounts(
            phase=phase,
            ok=by_status[Status.OK],
            failed=by_status[Status.FAILED],
            timeout=by_status[Status.TIMEOUT],
            cut=by_status[Status.CUT],
            cancelled=by_status[Status.CANCELLED],
            not_played=planned - by_status.total(),
        )


def _last_token_ns(exchange: Exchange) -> int:
    times_ns = exchange.reply.delta_times_ns
    return times_ns[-1] if times_ns else 0


def _answered(exchange: Exchange) -> Answered | None:
    times_ns = exchange.reply.delta_times_ns
    if not times_ns:
        return None
    ttft_ns = times_ns[0] - exchange.scheduled_ns
    return Answered(exchange.turn, exchange.scheduled_ns, ttft_ns, exchange.session.session_id)
