"""The sampler of `auto`: of all settings it asks for the one whose measurement is expected to gain most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from optuna.trial import FrozenTrial

from harness.engine.setting import Setting
from harness.statistics import Floats
from tuning.prior import Prior
from tuning.samplers.points import ListSampler, Point, flags_of
from tuning.samplers.surrogate import believe, coordinates

FEASIBLE, INFEASIBLE = -1.0, 1.0
ALIKE = 3
"""Digits to which expected costs are told apart: of equal ones the smaller host pool comes first."""


@dataclass(frozen=True)
class Known:
    """A setting that was measured outside of Optuna, as the baselines are."""

    setting: Setting
    value: float
    feasible: bool


class GuidedSampler(ListSampler):
    """Weighs what was measured and what was expected; before the first measurement it goes by the latter alone.

    What is expected is used where it is known of every setting.
    """

    def __init__(self, points: Sequence[Point], prior: Prior | None, *, seed: int, known: Sequence[Known] = ()) -> None:
        super().__init__(points)
        self._seed, self._known = seed, known
        settings = [*(point.setting for point in points), *(each.setting for each in known)]
        self._x = _coordinates(points, known)
        expected = [found for setting in settings if prior and (found := prior.expected(setting))]
        complete = len(expected) == len(settings)
        self._line = np.log([each.cost for each in expected]) if complete else np.zeros(len(settings))
        self._host_tokens = np.array([each.host_tokens for each in expected] if complete else self._line)

    def choose(self, told: Mapping[int, FrozenTrial], tried: set[int], *, maximise: bool) -> int:
        """Return the untried setting that is expected to gain most; of equal ones the cheapest, then by luck."""
        gain = self._gain(told, maximise=maximise)
        gain[list(tried)] = -1.0
        size = len(self.points)
        by_luck = np.random.default_rng((self._seed, len(tried))).random(size)
        return int(np.lexsort((by_luck, self._host_tokens[:size], self._line[:size].round(ALIKE), -gain[:size]))[0])

    def _gain(self, told: Mapping[int, FrozenTrial], *, maximise: bool) -> Floats:
        """Return how much better than the best so far each setting is expected to be, as a share."""
        values = {row: trial.value or 0.0 for row, trial in told.items()}
        values |= {len(self.points) + place: each.value for place, each in enumerate(self._known)}
        feasible = {row for row, trial in told.items() if max(trial.constraints.values(), default=FEASIBLE) <= 0}
        feasible |= {len(self.points) + place for place, each in enumerate(self._known) if each.feasible}
        kept = self._share_feasible(list(values), feasible)
        if not feasible:
            return kept
        rows = sorted(feasible)
        losses = _losses(np.array([values[row] for row in rows]), maximise=maximise)
        belief = believe(self._x, rows, losses, line=self._line)
        return kept * belief.improvement_below(float(belief.expected[rows].min()))

    def _share_feasible(self, rows: list[int], feasible: set[int]) -> Floats:
        """Return the probability of each setting to keep to all constraints; what nothing is like surely does."""
        if len(feasible) == len(rows):
            return np.ones(len(self._x))
        verdicts = np.array([FEASIBLE if row in feasible else INFEASIBLE for row in rows])
        return believe(self._x, rows, verdicts, line=np.zeros(len(self._x)), level=FEASIBLE).share_below(0.0)


def _losses(values: Floats, *, maximise: bool) -> Floats:
    """Return what is to be small, where a step of 1 is much: logarithms, or shares of their scale where one is 0."""
    scaled = np.log(values) if (values > 0).all() else values / (np.abs(values).max() or 1.0)
    return -scaled if maximise else scaled


def _coordinates(points: Sequence[Point], known: Sequence[Known]) -> Floats:
    """Place the points and what else is known beside each other, by the flags that the points have."""
    names = {name for point in points for name in point.params}
    others = [{name: value for name, value in flags_of(each.setting).items() if name in names} for each in known]
    return coordinates([*(point.params for point in points), *others])
