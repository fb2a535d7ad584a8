"""One study: an Optuna study on disk beside the measurements of its trials. It proposes and learns, it runs nothing.

The measurements are the truth. Optuna's storage follows them, so a crash between a measurement and its `tell`
loses nothing: `settle` reconciles the two when the study is opened again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from harness.engine.failure import Blame
from harness.engine.setting import Setting
from harness.errors import StoreError
from harness.store import Outcome, TrialRecord
from tuning.config import Search
from tuning.objective import Objective
from tuning.space import Space

optuna.logging.set_verbosity(optuna.logging.WARNING)

STARTUP_TRIALS = 5
MAX_DUPLICATES = 30
"""So many proposals in a row that were measured before mean that the space is used up."""
SETTING = "setting"
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
    """Proposes settings and learns from records."""

    def __init__(
        self,
        path: Path,
        *,
        space: Space,
        objective: Objective,
        seed: int,
        canonical: Callable[[Setting], Setting] = Setting.canonical,
        baselines: tuple[Setting, ...] = BASELINES,
    ) -> None:
        self.baselines = baselines
        self._path, self._space, self._objective, self._canonical = path, space, objective, canonical
        with self._storage():
            storage = RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": SQLITE_TIMEOUT_S}})
            self._study = optuna.create_study(
                storage=storage, study_name="hicache-tune", load_if_exists=True, directions=objective.directions
            )
            # A resumed sampler must not repeat the proposals of its first life.
            lived = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = _sampler(seed + lived)

    def settle(self) -> None:
        """Fail what was running when the study was last left, and queue it again.

        If its measurement is on disk after all, `propose` recognises the setting and tells it without a launch.
        """
        with self._storage():
            for frozen in self._study.get_trials(states=[TrialState.RUNNING]):
                self._study.tell(frozen.number, state=TrialState.FAIL)
                self._study.enqueue_trial(frozen.params)

    def propose(self, records: Iterable[TrialRecord]) -> Proposal | None:
        """Propose the next setting: first the baselines, then what Optuna asks for; None when the space is used up."""
        searched = [r for r in records if r.purpose == "search" and r.outcome is not Outcome.INTERRUPTED]
        measured = {record.setting.key: record for record in searched}
        for baseline in self.baselines:
            if baseline.key not in measured or stops_the_search(measured[baseline.key]):
                return Proposal(baseline)
        with self._storage():
            for _ in range(MAX_DUPLICATES):
                trial = self._study.ask()
                setting = self._canonical(self._space.propose(trial))
                trial.set_user_attr(SETTING, setting.label)
                known = measured.get(setting.key)
                if known is None:
                    return Proposal(setting, trial)
                self._tell(trial, known)
        return None

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
                self._study.enqueue_trial(trial.params)
            return
        for name, violation in self._objective.violations(record).items():
            trial.set_constraint(name, violation)
        self._study.tell(trial, self._objective.values(record))

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


def _sampler(seed: int) -> TPESampler:
    """Make a TPE sampler that models the flags of HiCache on and off apart (`group`), as the space is conditional."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # `group`: the only way to do so, pinned by our range
        return TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=STARTUP_TRIALS)


def first_proposals(space: Space, seed: int, count: int) -> list[Setting]:
    """Return what a new study would propose first, before anything is measured."""
    study = optuna.create_study(sampler=_sampler(seed))
    return [space.propose(study.ask()) for _ in range(count)]
