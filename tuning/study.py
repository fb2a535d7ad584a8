"""One study: an Optuna study on disk beside the measurements of its trials. It proposes and learns, it runs nothing.

The measurements are the truth. Optuna's storage follows them, so a crash between a measurement and its `tell`
loses nothing: `settle` reconciles the two when the study is opened again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from harness.engine.failure import Blame
from harness.engine.setting import Setting
from harness.errors import StoreError
from harness.store import Outcome, TrialRecord, requests_path
from tuning.config import Search
from tuning.objective import LAUNCHED, Objective
from tuning.pooled import pooled
from tuning.samplers import Samplers
from tuning.samplers.guided import Known
from tuning.samplers.points import all_points

optuna.logging.set_verbosity(optuna.logging.WARNING)

NAME = "hicache-tune"
MAX_DUPLICATES = 30
"""After so many proposals in a row that were measured before, whatever is left is taken in order."""
SETTING, TURN, REPEATS, REFUSED, FIRST = "setting", "turn", "measurements", "refused", "first proposals"
"""What is kept in Optuna's storage: of a trial its setting, which proposal it was, how many measurements it stands for,
and why it was not launched; of the study what comes first."""
Refusal = Callable[[Setting], str | None]
"""Says why preflight would refuse a setting; None when it would not."""
SQLITE_TIMEOUT_S = 60
"""A dashboard may hold the file for a while; a result is worth waiting for."""

BASELINES = (Setting(hicache=False), Setting(hicache=True).canonical())
"""Trials 0 and 1 of every search: HiCache off and on, all else at SGLang's own defaults."""


def baselines_of(search: Search) -> tuple[Setting, ...]:
    """Return the baselines of a study; none where nothing restarts the engine."""
    return () if search.only_measures else BASELINES


@dataclass(frozen=True)
class Proposal:
    """A setting to measure, and the Optuna trial that waits for its result (None for a baseline)."""

    setting: Setting
    trial: optuna.Trial | None = None


class Study:
    """Proposes settings and learns from records.

    What it proposes follows from its arguments and from what it was told: a study that was stopped goes on as it would
    have, whatever its sampler.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        samplers: Samplers,
        objective: Objective,
        baselines: tuple[Setting, ...] = BASELINES,
        first: Sequence[Mapping[str, Any]] = (),
        refusal: Refusal = lambda _: None,
    ) -> None:
        """Open the study at `path`, or make one there; None keeps nothing.

        `first` are the parameters that a new study proposes before its sampler is asked. What `refusal` refuses is told
        as impossible and never proposed, apart from baselines.
        """
        self.baselines, self._refusal = baselines, refusal
        self._path, self._samplers, self._objective = path, samplers, objective
        with self._storage():
            self._study = optuna.create_study(
                storage=_storage_at(path), study_name=NAME, load_if_exists=True, directions=objective.directions
            )
            if FIRST not in self._study.user_attrs:
                self._study.set_user_attr(FIRST, [dict(params) for params in first])

    def settle(self) -> None:
        """Fail what was running when the study was last left, and queue it again.

        If its measurement is on disk after all, `propose` recognises the setting and tells it without a launch.
        """
        with self._storage():
            for frozen in self._study.get_trials(states=[TrialState.RUNNING]):
                self._study.tell(frozen.number, state=TrialState.FAIL)
                self._queue(frozen)

    def propose(self, records: Iterable[TrialRecord]) -> Proposal | None:
        """Propose the next setting: first the baselines, then what Optuna asks for; None when the space is used up."""
        records = list(records)
        searched = [r for r in records if r.purpose == "search" and r.outcome is not Outcome.INTERRUPTED]
        measured = {record.setting.key: record for record in searched}
        for baseline in self.baselines:
            if baseline.key not in measured or stops_the_search(measured[baseline.key]):
                return Proposal(baseline)
        known = self._known([measured[baseline.key] for baseline in self.baselines])
        with self._storage():
            self._tell_repeats(records)
            for _ in range(MAX_DUPLICATES + len(self._study.user_attrs[FIRST])):
                proposal = self._ask(known)
                if record := measured.get(proposal.setting.key):
                    self.learn(proposal, record)
                elif refused := self._refusal(proposal.setting):
                    self._tell_refused(proposal, refused)
                else:
                    return proposal
            for point in all_points(self._samplers.space, self._samplers.canonical):
                if point.key not in measured and not self._refusal(point.setting):
                    self._study.enqueue_trial(dict(point.params))
                    return self._ask(known)
        return None

    def _tell_repeats(self, records: Sequence[TrialRecord]) -> None:
        """Tell what all measurements of a setting say together, where there are several on different sessions.

        As what was told stays as it is, this is one more trial of the setting.
        """
        if self._path is None:
            return
        of_setting: dict[str, dict[int, TrialRecord]] = defaultdict(dict)
        for record in records:
            if record.usable and requests_path(self._path.parent, record).exists():
                of_setting[record.setting.label][record.seed] = record
        told = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        for label, trial in {trial.user_attrs.get(SETTING, ""): trial for trial in told}.items():
            group = list(of_setting.get(label, {}).values())
            if len(group) > trial.user_attrs.get(REPEATS, 1):
                self._add(trial, group, self._path.parent)

    def _add(self, told: FrozenTrial, group: Sequence[TrialRecord], root: Path) -> None:
        violations = [self._objective.violations(record) for record in group]
        self._study.add_trial(
            optuna.trial.create_trial(
                params=told.params,
                distributions=told.distributions,
                values=self._objective.values(pooled(group, root)),
                constraints={name: max(each[name] for each in violations if name in each) for name in violations[-1]},
                user_attrs={**told.user_attrs, REPEATS: len(group)},
            )
        )

    def _known(self, records: Iterable[TrialRecord]) -> list[Known]:
        """Return what the baselines have shown, which Optuna is not told, as they leave flags open."""
        return [
            Known(record.setting, self._objective.values(record)[0], self._objective.feasible(record))
            for record in records
            if record.outcome is not Outcome.INVALID
        ]

    def _ask(self, known: Sequence[Known]) -> Proposal:
        """Ask for a setting: what is queued, then what was to come first, then the sampler's own."""
        trials = self._study.get_trials(deepcopy=False)
        turn = 1 + max((trial.user_attrs.get(TURN, -1) for trial in trials), default=-1)
        first = self._study.user_attrs[FIRST]
        if turn < len(first) and not any(trial.state is TrialState.WAITING for trial in trials):
            self._study.enqueue_trial(first[turn])
        self._study.sampler = self._samplers.of_turn(turn, known)
        trial = self._study.ask()
        trial.set_user_attr(TURN, trial.user_attrs.get(TURN, turn))
        setting = self._samplers.canonical(self._samplers.space.propose(trial))
        trial.set_user_attr(SETTING, setting.label)
        return Proposal(setting, trial)

    def _queue(self, trial: optuna.Trial | FrozenTrial) -> None:
        """Queue a trial that was cut off: it comes again in its own turn."""
        turn = {TURN: trial.user_attrs[TURN]} if TURN in trial.user_attrs else {}
        self._study.enqueue_trial(trial.params, user_attrs=turn)

    def learn(self, proposal: Proposal, record: TrialRecord) -> None:
        """Tell Optuna what was measured."""
        if proposal.trial is not None:
            with self._storage():
                self._tell(proposal.trial, record)

    def _tell(self, trial: optuna.Trial, record: TrialRecord) -> None:
        """Tell value and constraints; a measurement that is at fault itself teaches nothing."""
        if record.outcome in (Outcome.INVALID, Outcome.INTERRUPTED):
            self._study.tell(trial, state=TrialState.FAIL)
            if record.outcome is Outcome.INTERRUPTED:
                self._queue(trial)
            return
        for name, violation in self._objective.violations(record).items():
            trial.set_constraint(name, violation)
        self._study.tell(trial, self._objective.values(record))

    def _tell_refused(self, proposal: Proposal, why: str) -> None:
        """Tell that a setting cannot work, which costs no launch and no trial."""
        if proposal.trial is not None:
            proposal.trial.set_user_attr(REFUSED, why)
            proposal.trial.set_constraint(LAUNCHED, 1.0)
            self._study.tell(proposal.trial, self._objective.worst)

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Turn what Optuna's storage raises into one sentence; the measurements beside it are whole."""
        try:
            yield
        except (StorageInternalError, SQLAlchemyError):
            raise StoreError(
                f"{self._path}: Optuna cannot use it; end the program that holds it, or remove it if it is damaged, "
                "then --resume: every measurement is kept beside it"
            ) from None


def stops_the_search(baseline: TrialRecord) -> bool:
    """Whether not even SGLang's defaults start, for a reason that no setting can mend: to be mended, then resumed.

    What the machine does to HiCache alone, as memory that cannot be pinned, leaves the other settings to be searched.
    """
    failure = baseline.failure
    if failure is None or baseline.summary is not None:
        return False
    return failure.blame is Blame.USER or (failure.blame is Blame.MACHINE and not baseline.setting.hicache)


def _storage_at(path: Path | None) -> BaseStorage:
    if path is None:
        return InMemoryStorage()
    return RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": SQLITE_TIMEOUT_S}})


def first_proposals(samplers: Samplers, count: int) -> list[Setting]:
    """Return what a new study would propose first, before anything is measured."""
    study = Study(None, samplers=samplers, objective=Objective((), worst_s=1.0), baselines=())
    proposals = (study.propose([]) for _ in range(count))
    return [proposal.setting for proposal in proposals if proposal]
