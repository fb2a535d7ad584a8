"""What one load has done so far: which session is next, what was recorded, and whether it is over."""

from __future__ import annotations

import statistics
from collections import Counter, deque

from harness.load.job import LoadProgress, PhaseCounts, Stopped
from harness.load.record import RequestRecord, Status
from scenarios.plan import Phase, Plan, Session

PROGRESS_WINDOW = 200


class Ledger:
    """Shared by all slots of a load; nothing in it waits."""

    def __init__(self, plan: Plan, *, refusals_before_lost: int) -> None:
        self.started_ns = 0
        """When the load started; sessions arrive relative to it."""
        self.stopped: Stopped | None = None
        self.records: list[RequestRecord] = []
        self.in_flight = 0
        self._plan = plan
        self._waiting = deque(plan.sessions)
        self._left = len(plan.sessions)
        self._counted_left = sum(s.phase is Phase.COUNTED for s in plan.sessions)
        self._has_counted = self._counted_left > 0
        self._refusals_before_lost = refusals_before_lost
        self._refusals_in_a_row = 0
        self._recent_ttft_ns: deque[int] = deque(maxlen=PROGRESS_WINDOW)
        self._counted_status: Counter[Status] = Counter()

    def take(self) -> Session | None:
        """Hand out the next session in plan order; None when there is none left or the load is over."""
        return self._waiting.popleft() if self._waiting and self.stopped is None else None

    def end_session(self, session: Session) -> None:
        """Note that `session` has ended, by its last turn or by a failed one."""
        self._left -= 1
        if session.phase is Phase.COUNTED:
            self._counted_left -= 1
        if self._left == 0 or (self._has_counted and self._counted_left == 0):
            self.stop(Stopped.COMPLETE)

    def add(self, record: RequestRecord) -> None:
        """Keep `record`."""
        self.records.append(record)
        if record.phase is not Phase.COUNTED:
            return
        self._counted_status[record.status] += 1
        if record.status is Status.OK and record.first_token_ns is not None:
            self._recent_ttft_ns.append(record.first_token_ns - record.scheduled_ns)

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

    def progress(self) -> LoadProgress:
        """Say where the load is."""
        done = self._counted_status
        recent = self._recent_ttft_ns
        return LoadProgress(
            done=done.total(),
            of=self._plan.counted_turns,
            failed=done[Status.FAILED] + done[Status.TIMEOUT],
            in_flight=self.in_flight,
            ttft_p50_ms=round(statistics.median(recent) / 1e6, 1) if recent else None,
        )

    def counts(self) -> tuple[PhaseCounts, ...]:
        """Count what became of every turn of the plan."""
        return tuple(self._counts(phase) for phase in Phase)

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
