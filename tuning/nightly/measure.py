"""Measures settings on the seeds of a job, as often as is asked, from what is there already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.engine.setting import Setting
from harness.errors import EngineError, LoadError
from harness.lab import Lab
from harness.store import Outcome, TrialRecord, next_number, read_trials
from scenarios.plan import Plan
from tuning.answers import answers_of
from tuning.budget import Budget
from tuning.locks import alone
from tuning.nightly.judge import Run, falls_short
from tuning.objective import Objective
from tuning.runs import Measure, SearchWatch, deserves_another_try

SAYS_SOMETHING = (Outcome.MEASURED, Outcome.NOT_SUSTAINABLE)


@dataclass
class Remeasure:
    """The measurements of one night outside of its search."""

    lab: Lab
    watch: SearchWatch
    objective: Objective
    make_plan: Callable[[int], Plan]
    seeds: tuple[int, ...]
    budget: Budget
    measure: Measure
    records: list[TrialRecord] = field(default_factory=list)

    def run(self, settings: Sequence[Setting], *, times: int) -> None:
        """Measure until each setting has so many runs, in turn on each seed, the order reversed in every round.

        Ends early when it is asked to stop or the budget ends. When the first setting cannot be measured, not even on a
        second try, raises EngineError for the engine and LoadError for the client; the others are left out.
        """
        with alone(self.lab.root, self.lab.devices_name):
            self.lab.starts.end_orphans(self.lab.ledger)
            self.records = read_trials(self.lab.root)
            for time in range(times):
                for round_number, seed in enumerate(self.seeds):
                    for setting in settings if round_number % 2 == 0 else reversed(settings):
                        if len(self._of(setting, seed)) <= time:
                            self._measure(setting, seed, is_needed=setting == settings[0])

    def taken(self, setting: Setting, time: int) -> Run | None:
        """Return the first (0) or a later run of a setting; None unless it was measured on every seed."""
        found = [self._of(setting, seed)[time : time + 1] for seed in self.seeds]
        if not all(found):
            return None
        records = tuple(record for (record,) in found)
        broken = dict.fromkeys(name for record in records for name in self.objective.broken(record))
        return Run(
            setting=setting,
            records=records,
            answers=pd.concat((answers_of(self.lab.root, record) for record in records), ignore_index=True),
            falls_short=falls_short(records, list(broken)),
        )

    def _of(self, setting: Setting, seed: int) -> list[TrialRecord]:
        return [record for record in self._measured(setting, seed) if record.outcome in SAYS_SOMETHING]

    def _measured(self, setting: Setting, seed: int) -> Iterable[TrialRecord]:
        wanted = ("confirm", setting.key, seed)
        return (record for record in self.records if (record.purpose, record.setting.key, record.seed) == wanted)

    def _measure(self, setting: Setting, seed: int, *, is_needed: bool) -> None:
        """Run one trial; once more when the machine or the measurement was at fault. The first is tried in any case."""
        expected_s = None if self.records else 0.0
        if self.lab.should_stop() or not self.budget.allows_confirm_trial(expected_s):
            return
        record = self._trial(setting, seed)
        if deserves_another_try(record) and not self.lab.should_stop():
            record = self._trial(setting, seed)
        if not is_needed:
            return
        if record.outcome is Outcome.INVALID:
            raise LoadError(f"{setting.label} could not be measured: {record.reason}")
        if record.failure is not None:
            last = "\n  ".join(record.failure.last_lines)
            said = f"{setting.label}: {record.failure.sentence}"
            raise EngineError(f"{said}\n  {last}" if last else said)

    def _trial(self, setting: Setting, seed: int) -> TrialRecord:
        number = next_number(self.lab.root)
        self.watch.trial_begins(number, "confirm", setting, measured=0, eta_s=self.budget.trial_s)
        record = self.measure(self.lab, number=number, purpose="confirm", setting=setting, plan=self.make_plan(seed))
        self.records.append(record)
        self.budget.spent(record.duration_s)
        self.watch.trial_ends(record, feasible=self.objective.feasible(record), best=None)
        return record
