"""What a few noisy measurements say of all settings of a space, and where the next one is worth most.

A Gaussian process over the logarithm of a value, in which a flag counts by itself as well as together with others,
around a line in what was expected of each setting. How fast each flag matters is not fitted, which a handful of
measurements does not allow: many guesses are weighed by how well they explain what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erf

from harness.statistics import Floats

GUESSES = 64
"""Sets of scales that are weighed against each other."""
SLOPE, SLOPE_SPREAD = 1.3, 0.7
"""By how much the logarithm of a P99 grows with that of the expected cost: 1.2 on an H200, 1.6 on the CPU engine."""
LEVEL_SPREAD = 10.0
"""Nothing is known beforehand of how slow the load is as a whole."""


def coordinates(params: Sequence[Mapping[str, Any]]) -> Floats:
    """Return a row for each set of parameters, each of whose columns is one flag, or one word of a flag of words.

    Numbers are spaced evenly, by their order: their steps are what the user finds worth telling apart. A flag that is
    absent, as those of HiCache are without it, stands in the middle.
    """
    columns: list[list[float]] = []
    for name in dict.fromkeys(name for each in params for name in each):
        values = [each.get(name) for each in params]
        known = [value for value in values if value is not None]
        if all(isinstance(value, int | float) for value in known):
            place = {value: at for at, value in enumerate(sorted(set(known)))}
            last = max(1, len(place) - 1)
            columns.append([0.5 if value is None else place[value] / last for value in values])
        else:
            words = sorted(set(known))
            columns += [[float(value == word) for value in values] for word in words] if len(words) > 1 else []
    return np.array(columns, dtype=np.float64).reshape(len(columns), len(params)).T


@dataclass(frozen=True)
class Belief:
    """What is believed of every setting: one row for each guess of the scales, weighed by `weights`."""

    weights: Floats
    mean: Floats
    spread: Floats

    @property
    def expected(self) -> Floats:
        """The mean over all guesses."""
        expected: Floats = self.weights @ self.mean
        return expected

    def improvement_below(self, level: float) -> Floats:
        """Return how much each setting is expected to lie below `level`, what lies above it counting nothing."""
        gap = (level - self.mean) / self.spread
        density = np.exp(-0.5 * gap**2) / np.sqrt(2 * np.pi)
        improvement: Floats = self.weights @ (self.spread * (gap * _below(gap) + density))
        return improvement

    def share_below(self, level: float) -> Floats:
        """Return the probability of each setting to lie below `level`."""
        share: Floats = self.weights @ _below((level - self.mean) / self.spread)
        return share


def believe(x: Floats, seen: Sequence[int], values: Floats, *, line: Floats, level: float | None = None) -> Belief:
    """Return what `values`, measured at the rows `seen` of `x`, say of all rows.

    `line` is what was expected of each row, of which the values are about a multiple. `level` is what rows are taken
    for that nothing is like; None where nothing is known of it.
    """
    random = np.random.default_rng(0)
    scales = np.exp(random.normal(0.0, 0.7, (GUESSES, x.shape[1])))
    size = np.exp(random.normal(-0.7, 0.7, GUESSES))
    noise = np.exp(random.normal(-2.5, 0.5, GUESSES))
    alone = random.uniform(0.0, 1.0, GUESSES)
    mean, spread, fit = (np.empty((GUESSES, len(x))), np.empty((GUESSES, len(x))), np.empty(GUESSES))
    rows = list(seen)
    line = line - line.mean()
    trend = SLOPE * line + (level or 0.0)
    level_variance = LEVEL_SPREAD**2 if level is None else 0.0
    for guess in range(GUESSES):
        known = _likeness(x, x[rows], scales[guess], alone[guess]) * size[guess] ** 2
        known += level_variance + SLOPE_SPREAD**2 * np.outer(line, line[rows])
        own = size[guess] ** 2 + level_variance + SLOPE_SPREAD**2 * line**2
        lower = np.linalg.cholesky(known[rows] + noise[guess] ** 2 * np.eye(len(rows)))
        white = np.linalg.solve(lower, values - trend[rows])
        half = np.linalg.solve(lower, known.T)
        mean[guess] = trend + half.T @ white
        spread[guess] = np.sqrt(np.maximum(own - (half**2).sum(axis=0), 1e-12))
        fit[guess] = -0.5 * float(white @ white) - float(np.log(np.diag(lower)).sum())
    weights = np.exp(fit - fit.max())
    return Belief(weights / weights.sum(), mean, spread)


def _likeness(x: Floats, others: Floats, scales: Floats, alone: float) -> Floats:
    """Return how alike two rows are: by each column alone, and by all at once."""
    if not x.shape[1]:
        return np.ones((len(x), len(others)))
    apart = np.abs(x[:, np.newaxis, :] - others[np.newaxis, :, :]) / scales
    by_column = (1 + np.sqrt(3) * apart) * np.exp(-np.sqrt(3) * apart)
    likeness: Floats = alone * by_column.mean(axis=2) + (1 - alone) * by_column.prod(axis=2)
    return likeness


def _below(gap: Floats) -> Floats:
    below: Floats = 0.5 * (1 + erf(gap / np.sqrt(2)))
    return below
