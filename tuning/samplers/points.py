"""The settings of a space, one by one, each with the values that Optuna would have to propose for it.

A space says by `propose` alone which flags there are and when, so it is asked: a sampler that answers in turn with
every value leads through all of it, whatever its conditions are.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from tuning.space import Space, only

Canonical = Callable[[Setting], Setting]

STEPS = 9
"""Values that are looked at of a number without a step; on a logarithmic scale each doubling is."""
TRIALS_AT_ONCE = 500
"""Optuna looks through all trials of a study before each new one."""


@dataclass(frozen=True)
class Point:
    """One setting of a space."""

    setting: Setting
    """Canonical."""
    params: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """Identify the setting."""
        return self.setting.key

    @cached_property
    def flags(self) -> str:
        """Tell points apart: of a list, in a tenth of the time that keys take."""
        return self.setting.model_dump_json()


class ChoosingSampler(BaseSampler):
    """A sampler that answers for one value after another."""

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Leave every value to `sample_independent`."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return nothing, as nothing was asked for."""
        return {}


class ListSampler(ChoosingSampler, ABC):
    """Proposes settings of a known list, one untried setting after another.

    It holds nothing from one proposal to the next: what it proposes follows from its arguments and from the trials of
    the study alone, so that a resumed study goes on as it would have.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points
        self._row = {_identity(point.params): row for row, point in enumerate(points)}
        self._chosen: tuple[int, Mapping[str, Any]] = (-1, {})

    @abstractmethod
    def choose(self, told: Mapping[int, FrozenTrial], tried: set[int], *, maximise: bool) -> int:
        """Return the row of the next setting; `maximise` is whether higher values are better.

        `told` has the trials with a value by their row, the last one of a setting that has several; `tried` are the
        rows that were proposed. Where that is all of them, any row will do: the study recognises what it knows.
        """

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the chosen setting's value; the first one for a flag that only a queued trial's own values ask for."""
        if self._chosen[0] != trial.number:
            self._chosen = (trial.number, self._choose(study, trial))
        params = self._chosen[1]
        return params[param_name] if param_name in params else values_of(param_distribution)[0]

    def _choose(self, study: optuna.Study, trial: FrozenTrial) -> Mapping[str, Any]:
        others = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        rows = [(row, each) for each in others if (row := self._row.get(_identity(each.params))) is not None]
        told = {row: each for row, each in rows if each.state is TrialState.COMPLETE}
        tried = {row for row, each in rows if each.state is not TrialState.WAITING}
        maximise = study.directions[0] is StudyDirection.MAXIMIZE
        return self.points[self.choose(told, tried, maximise=maximise)].params


class GridSampler(ListSampler):
    """Proposes every setting once, in an order drawn by `seed`, so that a grid cut short is no corner of it.

    Optuna's own two cannot be used here: they end their study by an error once they are through, as they know only of
    studies that Optuna runs itself.
    """

    def __init__(self, points: Sequence[Point], *, seed: int) -> None:
        super().__init__(points)
        self._order = np.random.default_rng(seed).permutation(len(points)).tolist()

    def choose(self, told: Mapping[int, FrozenTrial], tried: set[int], *, maximise: bool) -> int:
        """Return the first of the order that was not tried."""
        return next((row for row in self._order if row not in tried), 0)


class _Odometer(ChoosingSampler):
    """Leads through every branch of a space; its last value turns fastest."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        self._asked = 0

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value at the present place."""
        values = values_of(param_distribution)
        if self._asked == len(self._places):
            self._places.append((0, len(values)))
        value = values[self._places[self._asked][0]]
        self._asked += 1
        return value

    def turn(self) -> bool:
        """Go on to the next branch; False after the last one."""
        self._asked = 0
        while self._places:
            at, size = self._places.pop()
            if at + 1 < size:
                self._places.append((at + 1, size))
                return True
        return False


def all_points(space: Space, canonical: Canonical) -> Iterator[Point]:
    """Yield every setting of `space` once, in the order of its values."""
    odometer = _Odometer()
    seen: set[str] = set()
    more = True
    while more:
        study = optuna.create_study(sampler=odometer)
        for _ in range(TRIALS_AT_ONCE):
            point = _ask(study, space, canonical)
            if point.flags not in seen:
                seen.add(point.flags)
                yield point
            if not (more := odometer.turn()):
                break


def some_points(space: Space, canonical: Canonical, *, most: int, seed: int) -> list[Point]:
    """Return every setting of `space`, or `most` random ones where there are more."""
    found = list(islice(all_points(space, canonical), most + 1))
    if len(found) <= most:
        return found
    study = optuna.create_study(sampler=RandomSampler(seed=seed))
    drawn = (_ask(study, space, canonical) for _ in range(most))
    return list({point.flags: point for point in drawn}.values())


def point_of(setting: Setting, space: Space, canonical: Canonical) -> Point | None:
    """Return the point of `space` that is `setting`; None when it lies outside."""
    study = optuna.create_study(sampler=_Answers(flags_of(setting)))
    try:
        point = _ask(study, space, canonical)
    except (_Outside, ConfigError):
        return None
    return point if point.key == canonical(setting).key else None


def flags_of(setting: Setting) -> dict[str, Any]:
    """Return the flags that `setting` names, by the names that dimensions of a space have."""
    return {dimension.name: dimension.choices[0] for dimension in only(setting).dimensions}


class _Outside(Exception):
    """A setting leaves a value open, or has one that the space does not have."""


@dataclass
class _Answers(ChoosingSampler):
    """Gives the values of one setting."""

    values: Mapping[str, Any]

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the setting's value; raise _Outside when it has none that the space has."""
        wanted = self.values.get(param_name)
        for value in values_of(param_distribution):
            if value == wanted:
                return value
        raise _Outside(param_name)


def values_of(distribution: BaseDistribution) -> tuple[Any, ...]:
    """Return the values of one flag in order."""
    match distribution:
        case CategoricalDistribution():
            return tuple(distribution.choices)
        case IntDistribution(log=True) | FloatDistribution(log=True):
            whole = isinstance(distribution, IntDistribution)
            doublings = range(math.ceil(math.log2(distribution.high / distribution.low) - 1e-9))
            numbers = [*(distribution.low * 2**doubling for doubling in doublings), distribution.high]
            return tuple(int(number) if whole else float(number) for number in numbers)
        case IntDistribution():
            return tuple(range(distribution.low, distribution.high + 1, distribution.step))
        case FloatDistribution(step=None):
            return tuple(np.linspace(distribution.low, distribution.high, STEPS).tolist())
        case FloatDistribution(step=float(step)):
            count = round((distribution.high - distribution.low) / step) + 1
            return tuple(round(distribution.low + number * step, 6) for number in range(count))
        case _:
            raise TypeError(distribution)


def _identity(params: Mapping[str, Any]) -> str:
    """Name a set of parameters; a float that was added up in another order is the same number."""
    rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in params.items()}
    return json.dumps(rounded, sort_keys=True)


def _ask(study: optuna.Study, space: Space, canonical: Canonical) -> Point:
    trial = study.ask()
    setting = canonical(space.propose(trial))
    return Point(setting, dict(trial.params))
