"""How the next setting is chosen: Optuna's samplers, each as it is, and our own, which is what `auto` takes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

import numpy as np
from optuna import Study
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from scenarios.errors import ConfigError
from tuning.config import SamplerName
from tuning.prior import Prior
from tuning.samplers.guided import GuidedSampler, Known
from tuning.samplers.points import Canonical, GridSampler, Point, all_points, some_points
from tuning.space import Space

STARTUP_TRIALS = 5
POINTS = 1_500
"""Settings that `auto` looks at; of a larger space it takes a random part."""
NEEDS = {"gp": "torch", "cmaes": "cmaes"}
"""The package that a sampler of Optuna needs besides."""


@dataclass(frozen=True)
class Samplers:
    """Makes the sampler of each proposal.

    One sampler for each proposal, seeded by its turn, makes a proposal follow from the trials of the study alone: a
    study that was stopped goes on as it would have.
    """

    name: SamplerName
    space: Space
    canonical: Canonical
    seed: int
    prior: Prior | None = None
    """What is expected of settings; only `auto` heeds it."""
    objectives: int = 1
    """With several there is no single best to come near, and `auto` is Optuna's default for that."""

    def of_turn(self, turn: int, known: Sequence[Known] = ()) -> BaseSampler:
        """Return the sampler of the proposal number `turn`; `known` was measured besides what Optuna was told."""
        seed = int(np.random.SeedSequence((self.seed, turn)).generate_state(1)[0])
        match self.name:
            case "auto" if self.objectives > 1:
                return _tpe(seed)
            case "auto":
                return GuidedSampler(self._points, self.prior, seed=self.seed, known=known)
            case "grid":
                return GridSampler(self._points, seed=self.seed)
            case "tpe":
                return _tpe(seed)
            case "gp":
                return GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False)
            case "cmaes":
                return _Cmaes(seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False)
            case "random":
                return RandomSampler(seed=seed)

    @cached_property
    def _points(self) -> list[Point]:
        if self.name == "grid":
            return list(all_points(self.space, self.canonical))
        return some_points(self.space, self.canonical, most=POINTS, seed=self.seed)


class _Cmaes(CmaEsSampler):
    """Takes no notice of constraints, and says so in a warning for each trial; our help says it once."""

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Go on without the warning."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Constraints have been set", category=UserWarning)
            super().after_trial(study, trial, state, values)


def _tpe(seed: int) -> TPESampler:
    """Make a TPE sampler that models the flags of HiCache on and off apart (`group`), as the space is conditional."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # `group`: the only way to do so, pinned by our range
        return TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=STARTUP_TRIALS)


def check_sampler(name: SamplerName) -> None:
    """Raise ConfigError for a sampler whose package is missing."""
    package = NEEDS.get(name)
    if package and find_spec(package) is None:
        raise ConfigError(
            f"--sampler {name} needs the package `{package}`; install it with `pip install {package}`, or leave "
            "--sampler out"
        )
