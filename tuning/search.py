"""A search: baselines, then what Optuna proposes, then the confirmation of the best, then the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from harness.draft import Watch
from harness.engine.failure import Blame
from harness.engine.setting import Setting
from harness.errors import EngineError
from harness.lab import Lab
from harness.store import Outcome, Purpose, TrialRecord, next_number, read_trials
from harness.trial import run_trial
from scenarios.plan import Plan
from tuning.budget import Budget
from tuning.config import Effort
from tuning.locks import alone
from tuning.objective import Objective
from tuning.study import Study, stops_the_search
from tuning.verdict import Verdict, decide

CONFIRM_SEED_OFFSET = 1000
"""Seeds of the confirmation lie far from the search's own, so that its sessions are fresh."""


class Measure(Protocol):
    """Whatever runs one trial: `harness.trial.run_trial`."""

    def __call__(self, lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        """Measure `setting` once, write its record and return it."""


class SearchWatch(Watch, Protocol):
    """Whoever shows a running search to people."""

    def trial_begins(self, number: int, purpose: Purpose, setting: Setting, *, measured: int, eta_s: float) -> None:
        """Tell which setting is measured next."""

    def trial_ends(self, record: TrialRecord, *, feasible: bool, best: TrialRecord | None) -> None:
        """Tell what a trial was worth."""


@dataclass
class Searcher:
    """Runs one study to its verdict, or to the end of its budget, or until it is asked to stop."""

    lab: Lab
    study: Study
    objective: Objective
    effort: Effort
    watch: SearchWatch
    make_plan: Callable[[int], Plan]
    seed: int
    measure: Measure = run_trial
    records: list[TrialRecord] = field(init=False)
    budget: Budget = field(init=False)
    _plans: dict[int, Plan] = field(default_factory=dict)

    def run(self) -> Verdict:
        """Search, confirm, decide. Raises EngineError when no launch can work until the user corrects something."""
        with alone(self.lab.root, self.lab.devices_name):
            self.lab.starts.end_orphans(self.lab.ledger)
            self.records = read_trials(self.lab.root)
            self.study.settle()
            effort = self.effort
            confirm_trials = effort.confirm_trials(len(self.study.baselines))
            self.budget = Budget(effort.trials, effort.budget_s, confirm_trials)
            for record in self.records:
                self.budget.spent(record.duration_s)
                self._learn_memory(record)
            self._search()
            self._confirm()
            return self.verdict()

    def verdict(self) -> Verdict:
        """Decide from what is measured so far."""
        baseline_key = self.study.baselines[0].key if self.study.baselines else None
        return decide(self.records, self.lab.root, baseline_key=baseline_key, objective=self.objective)

    def _search(self) -> None:
        while not self.lab.should_stop() and self.budget.allows_search_trial(self._searched()):
            proposal = self.study.propose(self.records)
            if proposal is None:
                return
            record = self._measure("search", proposal.setting, self.seed)
            self.study.learn(proposal, record)
            if proposal.trial is None:
                self._check_baseline(record)

    def _confirm(self) -> None:
        """Measure the top few and both baselines again on fresh seeds, in turn, the order reversed in every round."""
        for round_number in range(self.effort.confirm_rounds):
            seed = self.seed + CONFIRM_SEED_OFFSET + round_number
            candidates = self._candidates()
            for setting in candidates if round_number % 2 == 0 else reversed(candidates):
                if self.lab.should_stop():
                    return
                # A setting that misses its budget leaves the time to a quicker one.
                if not self._has_confirmed(setting, seed) and self.budget.allows_confirm_trial(self._took_s(setting)):
                    self._measure("confirm", setting, seed)

    def _took_s(self, setting: Setting) -> float | None:
        """Return how long the setting's longest trial took: settings that reload well play the same load faster."""
        return max((r.duration_s for r in self.records if r.setting == setting and r.usable), default=None)

    def _candidates(self) -> list[Setting]:
        feasible = [r for r in self.records if r.purpose == "search" and self.objective.feasible(r)]
        if not feasible:
            return []
        best_first = sorted(feasible, key=self.objective.order)
        baselines = self.study.baselines
        top = [record.setting for record in best_first if record.setting not in baselines][: self.effort.confirm_top]
        return [*baselines, *top]

    def _has_confirmed(self, setting: Setting, seed: int) -> bool:
        """Whether there is a confirmation that says something; a resume tries again what was invalid twice."""
        return any(
            (r.purpose, r.setting.key, r.seed) == ("confirm", setting.key, seed)
            for r in self.records
            if r.outcome not in (Outcome.INTERRUPTED, Outcome.INVALID)
        )

    def _measure(self, purpose: Purpose, setting: Setting, seed: int) -> TrialRecord:
        """Run one trial; once more when the machine or the measurement was at fault, not the setting."""
        record = self._run(purpose, setting, seed)
        if _deserves_another_try(record) and not self.lab.should_stop():
            record = self._run(purpose, setting, seed)
        return record

    def _run(self, purpose: Purpose, setting: Setting, seed: int) -> TrialRecord:
        number = next_number(self.lab.root)
        searched, confirmed = self._searched(), self._confirmed()
        eta_s = self.budget.eta_s(searched, confirmed)
        self.watch.trial_begins(number, purpose, setting, measured=searched, eta_s=eta_s)
        record = self.measure(self.lab, number=number, purpose=purpose, setting=setting, plan=self._plan(seed))
        self.records.append(record)
        self.budget.spent(record.duration_s)
        self._learn_memory(record)
        self.watch.trial_ends(record, feasible=self.objective.feasible(record), best=self._best())
        return record

    def _plan(self, seed: int) -> Plan:
        if seed not in self._plans:
            self._plans[seed] = self.make_plan(seed)
        return self._plans[seed]

    def _searched(self) -> int:
        """Count the settings that were tried, invalid ones included: they take as long, and must not go on for ever."""
        return len({r.setting.key for r in self.records if r.purpose == "search" and not _interrupted(r)})

    def _confirmed(self) -> int:
        return len({(r.setting.key, r.seed) for r in self.records if r.purpose == "confirm" and not _interrupted(r)})

    def _best(self) -> TrialRecord | None:
        feasible = [r for r in self.records if r.purpose == "search" and self.objective.feasible(r)]
        return min(feasible, key=self.objective.order, default=None)

    def _learn_memory(self, record: TrialRecord) -> None:
        """Learn how far the prediction of its memory was off, and the size of its pools."""
        if record.forecast is not None and record.seen is not None:
            self.lab.learned.learn(record.forecast, record.seen)

    def _check_baseline(self, record: TrialRecord) -> None:
        """Raise EngineError when the user must mend something first; the engine's last lines say what."""
        failure = record.failure
        if failure is None or not stops_the_search(record):
            return
        last = "\n  ".join(failure.last_lines)
        raise EngineError(f"{failure.sentence}\n  {last}" if last else failure.sentence)


def _interrupted(record: TrialRecord) -> bool:
    return record.outcome is Outcome.INTERRUPTED


def _deserves_another_try(record: TrialRecord) -> bool:
    machine = record.failure is not None and record.failure.blame is Blame.MACHINE
    return machine or record.outcome is Outcome.INVALID
