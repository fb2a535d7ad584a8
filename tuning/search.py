"""A search: baselines, what Optuna proposes, the confirmation of the best, the winner under stress, the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.engine.setting import Setting
from harness.errors import EngineError
from harness.lab import Lab
from harness.load.job import Rival
from harness.store import TrialRecord, read_trials
from harness.trial import run_trial
from scenarios.plan import Plan
from tuning.budget import Budget
from tuning.config import Effort
from tuning.confirm import CONFIRM_SEED_OFFSET, Confirmation, InQuestion, Rounds
from tuning.locks import alone
from tuning.objective import TTFT_P99, Objective
from tuning.racing import rival_of
from tuning.runs import Measure, Runs, SearchWatch
from tuning.stress import STRESS_SEED_OFFSET, TIMES
from tuning.study import Study, stops_the_search
from tuning.verdict import Verdict, decide


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
    make_stress_plan: Callable[[int], Plan] | None = None
    """Makes the sessions of a higher load for a seed; None where there is no such load."""
    measure: Measure = run_trial
    records: list[TrialRecord] = field(init=False)
    _plans: dict[int, Plan] = field(default_factory=dict)

    def run(self) -> Verdict:
        """Search, confirm, decide. Raises EngineError when no launch can work until the user corrects something."""
        with alone(self.lab.root, self.lab.devices_name):
            self.lab.starts.end_orphans(self.lab.ledger)
            self.records = read_trials(self.lab.root)
            self.study.settle()
            effort = self.effort
            budget = Budget(effort.trials, effort.budget_s, effort.confirm_trials(len(self.study.baselines)))
            runs = Runs(self.lab, self.objective, self.watch, self.measure, budget, self.records)
            self._search(runs)
            self._confirm(runs)
            self._stress(runs)
            return self.verdict()

    def verdict(self) -> Verdict:
        """Decide from what is measured so far."""
        baseline_key = self.study.baselines[0].key if self.study.baselines else None
        return decide(self.records, self.lab.root, baseline_key=baseline_key, objective=self.objective)

    def _search(self, runs: Runs) -> None:
        while not self.lab.should_stop() and runs.budget.allows_search_trial(runs.searched):
            proposal = self.study.propose(self.records)
            if proposal is None:
                return
            rival = None if proposal.trial is None else self._rival(runs)  # a baseline is measured whatever it takes
            record = runs.run("search", proposal.setting, self._plan(self.seed), rival=rival)
            self.study.learn(proposal, record)
            if proposal.trial is None:
                self._check_baseline(record)

    def _confirm(self, runs: Runs) -> None:
        """Measure the top few and both baselines again."""
        effort, baselines = self.effort, self.study.baselines
        rounds = Rounds(effort.confirm_rounds, max(effort.confirm_rounds, effort.confirm_rounds_most))
        confirmation = Confirmation(runs, rounds, self._plan, self.seed + CONFIRM_SEED_OFFSET)
        needed = baselines[0] if baselines else None
        confirmation.play(self._candidates(), InQuestion(self.lab.root, self.objective, effort.confirm_until, needed))

    def _stress(self, runs: Runs) -> None:
        """Measure the winner under more load, if there is time for it."""
        if not self.effort.stress or self.make_stress_plan is None or self.lab.should_stop():
            return
        winner = self.verdict().winner
        setting = next((r.setting for r in self.records if winner and r.setting.key == winner.key), None)
        seed = self.seed + STRESS_SEED_OFFSET
        if setting is None or runs.has("stress", setting, seed):
            return
        if runs.budget.allows_confirm_trial(TIMES * (runs.took_s(setting) or 0.0)):
            runs.run("stress", setting, self.make_stress_plan(seed))

    def _rival(self, runs: Runs) -> Rival | None:
        """Return whom a proposal races against; what a part of a load says of other goals than TTFT is not known."""
        races = self.effort.racing and self.objective.goals == (TTFT_P99,)
        return rival_of(runs.best, self.lab.root, self.seed) if races else None

    def _candidates(self) -> list[Setting]:
        feasible = [r for r in self.records if r.purpose == "search" and self.objective.feasible(r)]
        if not feasible:
            return []
        best_first = sorted(feasible, key=self.objective.order)
        baselines = self.study.baselines
        top = [record.setting for record in best_first if record.setting not in baselines][: self.effort.confirm_top]
        return [*baselines, *top]

    def _plan(self, seed: int) -> Plan:
        if seed not in self._plans:
            self._plans[seed] = self.make_plan(seed)
        return self._plans[seed]

    def _check_baseline(self, record: TrialRecord) -> None:
        """Raise EngineError when the user must mend something first; the engine's last lines say what."""
        failure = record.failure
        if failure is None or not stops_the_search(record):
            return
        last = "\n  ".join(failure.last_lines)
        raise EngineError(f"{failure.sentence}\n  {last}" if last else failure.sentence)
