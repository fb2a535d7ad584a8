"""One study on disk that is searched over a simulated engine, life after life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.lab import Lab
from harness.load.job import ApiName
from harness.store import Purpose, Step, TrialRecord
from harness.telemetry import NvmlUnavailable
from scenarios.plan import Plan
from tests.support.simulated import SimulatedEngine
from tuning.budget import Budget
from tuning.config import Effort
from tuning.objective import Constraint, Objective
from tuning.samplers import Samplers
from tuning.search import Searcher
from tuning.space import Ranges, Space
from tuning.study import Study

SEED = 7
WIDE = Ranges(hicache_ratio="1.5:6:0.5", page_size="16,32,64").space()
OBJECTIVE = Objective((Constraint.parse("errors <= 1%"),), worst_s=600.0)


class Clock:
    """The budget's clock: it is moved by the trials alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def passes(self, record: TrialRecord) -> None:
        """Let the time pass that a trial took."""
        self.now_s += record.duration_s


def clock_of_trials(monkeypatch: pytest.MonkeyPatch, *, budget: str = "tuning.search.Budget") -> Clock:
    """Put a clock that the trials move in place of the clock of the budget that `budget` names."""
    clock = Clock()

    def begins_now(trials: int, seconds: float | None, confirm_trials: int) -> Budget:
        return Budget(trials, seconds, confirm_trials, started=clock.now_s)

    monkeypatch.setattr("tuning.budget.time", clock)
    monkeypatch.setattr(budget, begins_now)
    return clock


class QuietWatch:
    """Keeps what is shown of a running search."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, float]] = []
        self.best: list[float | None] = []

    def trial_begins(self, number: int, purpose: Purpose, setting: Setting, *, measured: int, eta_s: float) -> None:
        """Keep how far the search is."""
        self.begun.append((measured, eta_s))

    def trial_ends(self, record: TrialRecord, *, feasible: bool, best: TrialRecord | None) -> None:
        """Keep the best so far."""
        self.best.append(best.p99_s if best else None)

    def step(self, number: int, name: str) -> None:
        """Show nothing."""

    def step_done(self, number: int, step: Step) -> None:
        """Show nothing."""

    def launching(self, number: int, phase: Any) -> None:
        """Show nothing."""

    def playing(self, number: int, progress: Any) -> None:
        """Show nothing."""


class Search:
    """One study on disk and its simulated engine; `run` is one life of the process that searches it."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root, self.watch, self.stopping = root, QuietWatch(), False
        self.engine, self.clock = SimulatedEngine(), clock
        self.go_on()
        self.model = "Org/Name"
        root.mkdir()

    def searcher(self, *, space: Space = WIDE, **effort: Any) -> Searcher:
        """Open the study as a fresh process does."""
        values = {"trials": 6, "confirm_top": 2, "confirm_rounds": 2, "ready_timeout_s": 600} | effort
        lab = Lab(
            root=self.root,
            spec=EngineSpec(python=Path("python"), model=self.model, sglang_version="0.5.15"),
            watch=self.watch,
            should_stop=lambda: self.stopping,
            must_hurry=lambda: False,
            api=ApiName.CHAT,
            load_limit_s=600,
            warm_up_tokens=100,
            device=NvmlUnavailable("no GPU"),
        )
        return Searcher(
            lab=lab,
            study=Study(
                self.root / "study.db", samplers=Samplers("auto", space, Setting.canonical, SEED), objective=OBJECTIVE
            ),
            objective=OBJECTIVE,
            effort=Effort(**values),
            watch=self.watch,
            make_plan=lambda seed: Plan("simulated", seed, 1, ()),
            seed=SEED,
            make_stress_plan=lambda seed: Plan("simulated", seed, 2, ()),
            measure=self.engine,
        )

    def stop_after(self, trials: int) -> None:
        """Ask for a stop once so many more trials have ended, as Ctrl-C does."""
        end = len(self.engine.asked) + trials

        def check(record: TrialRecord) -> None:
            self.clock.passes(record)
            self.stopping = len(self.engine.asked) >= end

        self.engine.after_each = check

    def go_on(self) -> None:
        """Forget the stop: the user resumes."""
        self.stopping, self.engine.after_each = False, self.clock.passes
