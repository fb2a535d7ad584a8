"""Quantiles from raw records, with intervals that resample sessions.

Requests of one session share its history and its luck with the caches, so resampling single requests would give
intervals that are too narrow (design rule 3). Quantiles interpolate linearly between order statistics (numpy's
default), so that min <= p50 <= p99 <= max always holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

CONFIDENT_P99_REQUESTS = 500
"""A P99 from fewer requests rests on the five slowest at most: it is shown with its interval and flagged.

No resample is slower than the slowest request seen, so the interval of a P99 lies too low: simulated loads of 240
requests have it hold the truth in 63 % of cases, 480 in 74 %, 2,560 in 90 %. The change between two settings has no
such bias: its interval falsely excludes 0 in 2 % of cases on each side from 480 requests on.
"""
CONFIDENCE = 0.95
RESAMPLES = 999
MOST_UNITS = 2_000
"""More sessions than this are drawn in random groups of equal size, which is as valid.

Of 12 simulated loads of 6,000 sessions the interval of the P99 was 2 % wider on average, with a scatter of 4 %.
"""
CELLS_AT_ONCE = 4_000_000
"""How many resampled values are held in memory at a time."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @classmethod
    def of(cls, resampled: Floats) -> Interval:
        """Return the percentile interval of a statistic's resamples."""
        low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return cls(float(low), float(high))


def quantile(values: Floats, q: float) -> float:
    """Return the `q` quantile of raw `values`, which must not be empty."""
    return float(np.quantile(values, q))


class Sessions:
    """Values grouped by session, for statistics of resampled sessions.

    What a resample draws are units: the sessions, or groups of them when there are more than MOST_UNITS.
    """

    def __init__(self, values: Floats, session_of: npt.NDArray[Any]) -> None:
        codes, self.names, self.units = units_of(session_of)
        order = np.argsort(values)
        self._sorted = values[order]
        self._unit = codes[order]
        self._size = np.bincount(codes, minlength=self.units).astype(np.float64)

    def quantile(self, q: float, times_drawn: npt.NDArray[np.int64] | None = None) -> float:
        """Return the quantile of all values, or of a resample in which unit i was drawn `times_drawn[i]` times."""
        if times_drawn is None:
            return quantile(self._sorted, q)
        return float(self.resampled(q, times_drawn[np.newaxis].astype(np.float64))[0])

    def interval(self, q: float, *, seed: int = 0) -> Interval | None:
        """Return the bootstrap interval of a quantile; None when there are fewer than two sessions."""
        return Interval.of(self.resampled(q, draws(self.units, seed))) if self.units > 1 else None

    def interval_of_mean(self, *, seed: int = 0) -> Interval | None:
        """Return the bootstrap interval of the mean; None when there are fewer than two sessions."""
        if self.units < 2:
            return None
        drawn, sums = draws(self.units, seed), np.bincount(self._unit, weights=self._sorted, minlength=self.units)
        return Interval.of((drawn @ sums) / (drawn @ self._size))

    def resampled(self, q: float, drawn: Floats) -> Floats:
        """Return the exact quantile of each resample: row b draws unit i `drawn[b, i]` times; NaN where that is never.

        The quantile of a resample lies near that of all values, so only the values around it are looked at, with the
        number of those below; the part is widened until it holds the quantile of every resample.
        """
        near, half = self._rank(q), self._reach(q)
        while True:
            part = slice(max(0, near - half), min(len(self._sorted), near + half + 1))
            rows = max(1, CELLS_AT_ONCE // (part.stop - part.start))
            found = [self._within(part, q, drawn[row : row + rows]) for row in range(0, len(drawn), rows)]
            complete = [values for values in found if values is not None]
            if len(complete) == len(found):
                return np.concatenate(complete)
            half *= 8

    def _rank(self, q: float) -> int:
        return round(q * (len(self._sorted) - 1))

    def _reach(self, q: float) -> int:
        """Guess how many ranks the quantile of a resample moves: eight standard errors of the number above it."""
        above = np.bincount(self._unit[self._rank(q) :], minlength=self.units)
        return 8 + int(8 * np.linalg.norm(above - (1 - q) * self._size))

    def _within(self, part: slice, q: float, drawn: Floats) -> Floats | None:
        """Return the quantiles if all of them lie within `part` of the sorted values."""
        total = drawn @ self._size
        below = drawn @ np.bincount(self._unit[: part.start], minlength=self.units).astype(np.float64)
        cumulative = below[:, np.newaxis] + np.cumsum(drawn[:, self._unit[part]], axis=1)
        rank = np.maximum(q * (total - 1), 0.0)
        low, high = np.floor(rank), np.ceil(rank)
        drew = total > 0
        if np.any(drew & ((low < below) | (high >= cumulative[:, -1]))):
            return None
        lower, upper = (self._sorted[part][_first_above(cumulative, k)] for k in (low, high))
        return np.where(drew, lower + (upper - lower) * (rank - low), np.nan)


def units_of(session_of: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], Sequence[Any], int]:
    """Return the unit that each value is drawn with, the names of the sessions, and how many units there are."""
    codes, names = pd.factorize(session_of, sort=True)
    units = min(len(names), MOST_UNITS)
    if len(names) > units:
        codes = np.random.default_rng(0).permutation(len(names))[codes] % units
    return codes, list(names), units


class Statistic(Protocol):
    """One figure of a load that can be taken again of sessions drawn at random."""

    @property
    def names(self) -> Sequence[Any]:
        """The sessions, in order."""

    @property
    def units(self) -> int:
        """How many units a resample draws."""

    def value(self) -> float:
        """Return the figure of all sessions."""

    def of_resamples(self, drawn: Floats) -> Floats:
        """Return the figure of each resample: row b draws unit i `drawn[b, i]` times."""


@dataclass(frozen=True)
class Quantile:
    """A quantile of the values of all sessions."""

    sessions: Sessions
    q: float

    @property
    def names(self) -> Sequence[Any]:
        """The sessions, in order."""
        return self.sessions.names

    @property
    def units(self) -> int:
        """How many units a resample draws."""
        return self.sessions.units

    def value(self) -> float:
        """Return the quantile of all values."""
        return self.sessions.quantile(self.q)

    def of_resamples(self, drawn: Floats) -> Floats:
        """Return the exact quantile of each resample."""
        return self.sessions.resampled(self.q, drawn)


class Ratio:
    """One sum over another, as answers over seconds, or those that meet a level over those that were judged.

    Sessions are drawn with both of their parts, so a rate is as uncertain as the time that sessions take.
    """

    def __init__(self, parts: Floats, wholes: Floats, session_of: npt.NDArray[Any]) -> None:
        codes, self.names, self.units = units_of(session_of)
        self._part = np.bincount(codes, weights=parts, minlength=self.units)
        self._whole = np.bincount(codes, weights=wholes, minlength=self.units)

    def value(self) -> float:
        """Return the ratio of the two sums over all sessions."""
        return float(self._part.sum() / self._whole.sum())

    def of_resamples(self, drawn: Floats) -> Floats:
        """Return the ratio of each resample."""
        found: Floats = (drawn @ self._part) / (drawn @ self._whole)
        return found


def interval_of(statistic: Statistic, *, seed: int = 0) -> Interval | None:
    """Return the bootstrap interval of a figure; None when there are fewer than two sessions."""
    if statistic.units < 2:
        return None
    return Interval.of(statistic.of_resamples(draws(statistic.units, seed)))


@dataclass(frozen=True)
class Change:
    """How a candidate's figure differs from a baseline's over the same sessions, with intervals.

    No interval: there are fewer than two sessions. Nothing relative: the baseline, or a resample of it, is zero.
    """

    difference: float
    """Candidate - baseline."""
    difference_interval: Interval | None
    relative: float | None
    """Candidate / baseline - 1: -0.6 is 60 % lower."""
    relative_interval: Interval | None

    @property
    def interval(self) -> Interval | None:
        """The relative interval, or else that of the difference: both lie on the same side of zero."""
        return self.relative_interval or self.difference_interval


def compare(baseline: Statistic, candidate: Statistic, *, seed: int = 0) -> Change:
    """Compare two figures.

    Both must have played the same sessions: a resample draws the same ones for both, which takes the differences
    between sessions out of the comparison. Sessions that only one of them has are refused.
    """
    if list(baseline.names) != list(candidate.names):
        raise ValueError("the two sides did not play the same sessions")
    theirs, mine = baseline.value(), candidate.value()
    relative = mine / theirs - 1 if theirs else None
    if baseline.units < 2:
        return Change(mine - theirs, None, relative, None)
    drawn = draws(baseline.units, seed)
    theirs_drawn, mine_drawn = baseline.of_resamples(drawn), candidate.of_resamples(drawn)
    return Change(
        mine - theirs,
        Interval.of(mine_drawn - theirs_drawn),
        relative,
        Interval.of(mine_drawn / theirs_drawn - 1) if np.all(theirs_drawn) else None,
    )


@lru_cache(maxsize=4)
def draws(units: int, seed: int) -> Floats:
    """Return how often each unit is drawn, one row a resample. Whole numbers as floats, which multiply quickly."""
    drawn = np.random.default_rng(seed).integers(0, units, (RESAMPLES, units))
    cells = drawn + units * np.arange(RESAMPLES)[:, np.newaxis]
    counts = np.bincount(cells.ravel(), minlength=RESAMPLES * units).reshape(RESAMPLES, units).astype(np.float64)
    counts.setflags(write=False)
    return counts


def _first_above(cumulative: Floats, rank: Floats) -> npt.NDArray[np.int64]:
    """Return, for each row, the first column whose cumulated count is above `rank`."""
    column: npt.NDArray[np.int64] = np.count_nonzero(cumulative <= rank[:, np.newaxis], axis=1).astype(np.int64)
    return column.clip(max=cumulative.shape[1] - 1)
