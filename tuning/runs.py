"""The trials of one study, run one after the other: what was measured so far, and how the next one is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from harness.draft import Watch
from harness.engine.failure import Blame
from harness.engine.setting import Setting
from harness.lab import Lab
from harness.load.job import Rival
from harness.store import Outcome, Purpose, TrialRecord, next_number
from scenarios.plan import Plan
from tuning.budget import Budget
from tuning.objective import Objective


class Measure(Protocol):
    """Whatever runs one trial: `harness.trial.run_trial`."""

    def __call__(self, lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        """Measure `setting` once, write its record and return it."""


class SearchWatch(Watch, Protocol):
    """Whoever shows running trials to people."""

    def trial_begins(self, number: int, purpose: Purpose, setting: Setting, *, measured: int, eta_s: float) -> None:
        """Tell which setting is measured next."""

    def trial_ends(self, record: TrialRecord, *, feasible: bool, best: TrialRecord | None) -> None:
        """Tell what a trial was worth."""


@dataclass
class Runs:
    """Runs trials in one laboratory, and keeps their records and what they cost."""

    lab: Lab
    objective: Objective
    watch: SearchWatch
    measure: Measure
    budget: Budget
    records: list[TrialRecord]

    def __post_init__(self) -> None:
        for record in self.records:
            self._learn(record)

    def run(self, purpose: Purpose, setting: Setting, plan: Plan, *, rival: Rival | None = None) -> TrialRecord:
        """Run one trial; once more when the machine or the measurement was at fault, not the setting.

        With a `rival` its load ends once it is surely worse than that trial.
        """
        self.lab.rival = rival
        record = self._once(purpose, setting, plan)
        if deserves_another_try(record) and not self.lab.should_stop():
            record = self._once(purpose, setting, plan)
        return record

    def has(self, purpose: Purpose, setting: Setting, seed: int) -> bool:
        """Whether there is a trial that says something; a resume tries again what was invalid twice."""
        return any(
            (r.purpose, r.setting.key, r.seed) == (purpose, setting.key, seed)
            for r in self.records
            if r.outcome not in (Outcome.INTERRUPTED, Outcome.INVALID)
        )

    def took_s(self, setting: Setting) -> float | None:
        """Return how long the setting's longest trial took: settings that reload well play the same load faster."""
        return max((r.duration_s for r in self.records if r.setting == setting and r.usable), default=None)

    @property
    def searched(self) -> int:
        """Count the settings that were tried, invalid ones included: they take as long, and must not go on for ever."""
        return len({r.setting.key for r in self.records if r.purpose == "search" and not _interrupted(r)})

    @property
    def best(self) -> TrialRecord | None:
        """Return the best trial of the search so far."""
        feasible = [r for r in self.records if r.purpose == "search" and self.objective.feasible(r)]
        return min(feasible, key=self.objective.order, default=None)

    @property
    def _measured_again(self) -> int:
        return len({(r.setting.key, r.seed) for r in self.records if r.purpose != "search" and not _interrupted(r)})

    def _once(self, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        number = next_number(self.lab.root)
        eta_s = self.budget.eta_s(self.searched, self._measured_again)
        self.watch.trial_begins(number, purpose, setting, measured=self.searched, eta_s=eta_s)
        record = self.measure(self.lab, number=number, purpose=purpose, setting=setting, plan=plan)
        self.records.append(record)
        self._learn(record)
        self.watch.trial_ends(record, feasible=self.objective.feasible(record), best=self.best)
        return record

    def _learn(self, record: TrialRecord) -> None:
        """Learn what a trial cost, how far the prediction of its memory was off, and the size of its pools."""
        self.budget.spent(record.duration_s)
        if record.forecast is not None and record.seen is not None:
            self.lab.learned.learn(record.forecast, record.seen)


def _interrupted(record: TrialRecord) -> bool:
    return record.outcome is Outcome.INTERRUPTED


def deserves_another_try(record: TrialRecord) -> bool:
    """Whether the machine or the measurement was at fault, not the setting."""
    machine = record.failure is not None and record.failure.blame is Blame.MACHINE
    return machine or record.outcome is Outcome.INVALID
