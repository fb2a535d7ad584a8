"""A nightly job over a simulated engine: every trial may be slower than the setting alone says."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta

from harness.engine.setting import Setting
from harness.lab import Lab
from harness.store import Purpose, TrialRecord
from scenarios.plan import Plan
from tests.support.simulated import SimulatedEngine, p99_s
from tests.support.trials import base_ttft_s, write_requests


class NightEngine(SimulatedEngine):
    """A simulated engine that is `factor` times as slow; `factors` are those of the next trials."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0
        self.factors: deque[float] = deque()

    def __call__(self, lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        """Measure, and write the requests again as slow as they are tonight."""
        record = super().__call__(lab, number=number, purpose=purpose, setting=setting, plan=plan)
        factor = self.factors.popleft() if self.factors else self.factor
        write_requests(lab.root, record, base_ttft_s(plan.seed) * p99_s(setting) * factor)
        return record


class Calendar:
    """The clock of the nights."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, 1, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Read it."""
        return self.now

    def pass_days(self, days: float) -> None:
        """Let time pass."""
        self.now += timedelta(days=days)
