"""Sees a whole load from the reports of the processes that play it, and says when it must end."""

from __future__ import annotations

import math
import statistics
from collections import deque

from harness.load.divergence import Divergence
from harness.load.job import LoadJob, LoadProgress, Lost, Stopped
from harness.load.race import Race
from harness.load.report import Report
from scenarios.plan import Phase, Plan

PROGRESS_WINDOW = 200


class Lookout:
    """Hears `processes` reporters, each numbered from 0; until one has reported nothing is known of it."""

    def __init__(self, job: LoadJob, plan: Plan, *, processes: int = 1) -> None:
        self._counted_turns = plan.counted_turns
        self._has_counted = any(session.phase is Phase.COUNTED for session in plan.sessions)
        self._processes = processes
        self._reports: dict[int, Report] = {}
        self._recent_ttft_ns: deque[int] = deque(maxlen=PROGRESS_WINDOW)
        self._divergence = Divergence(job.diverging_least_s) if job.stop_when_diverging else None
        self._slo_ns = None if job.slo_ttft_s is None else round(job.slo_ttft_s * 1e9)
        self._missed = 0
        self._race = Race(job.rival) if job.rival is not None else None
        self.lost: Lost | None = None
        """By how much the load is worse than its rival, once that has ended it."""

    def hear(self, process: int, report: Report) -> None:
        """Take the newest report of one process."""
        self._reports[process] = report
        self._recent_ttft_ns.extend(request.ttft_ns for request in report.answered)
        if self._divergence is not None:
            self._divergence.add(report.answered)
        if self._race is not None:
            self._race.add(report.answered)
        if self._slo_ns is not None:
            self._missed += sum(request.ttft_ns > self._slo_ns for request in report.answered)

    def why_stop(self, now_ns: int) -> Stopped | None:
        """Say why the load must end now, or None when it goes on."""
        if stopped := next((r.stopped for r in self._reports.values() if r.stopped is not None), None):
            return stopped
        if self._is_complete():
            return Stopped.COMPLETE
        if self._cannot_meet_the_slo(now_ns):
            return Stopped.SLO_MISSED
        waiting = [request for report in self._reports.values() for request in report.waiting]
        if self._divergence is not None and self._divergence.look(now_ns, waiting):
            return Stopped.DIVERGED
        if self._race is not None and (lost := self._race.look()):
            self.lost = lost
            return Stopped.SURELY_WORSE
        return None

    def progress(self, now_ns: int) -> LoadProgress:
        """Say where the load is."""
        reports, recent = self._reports.values(), self._recent_ttft_ns
        in_flight = sum(r.in_flight for r in reports)
        heard_ns = max((r.heard_ns for r in reports), default=now_ns)
        return LoadProgress(
            done=sum(r.done for r in reports),
            of=self._counted_turns,
            failed=sum(r.failed for r in reports),
            in_flight=in_flight,
            ttft_p50_ms=round(statistics.median(recent) / 1e6, 1) if recent else None,
            silent_s=round(max(0, now_ns - heard_ns) / 1e9, 1) if in_flight else 0.0,
        )

    def _is_complete(self) -> bool:
        """Whether all counted sessions have ended; of a plan without any, all sessions."""
        if len(self._reports) < self._processes:
            return False
        left = (r.counted_left if self._has_counted else r.sessions_left for r in self._reports.values())
        return sum(left) == 0

    def _cannot_meet_the_slo(self, now_ns: int) -> bool:
        """Whether the P99 of all counted turns is past the level already, even if all others came at once."""
        if self._slo_ns is None or not self._counted_turns:
            return False
        due_before_ns = now_ns - self._slo_ns
        waiting = sum(w.scheduled_ns < due_before_ns for r in self._reports.values() for w in r.waiting)
        # The P99 lies between two order statistics: once the lower one has missed, so has whatever is between them.
        return self._missed + waiting >= self._counted_turns - math.floor(0.99 * (self._counted_turns - 1))
