"""Quantiles from raw records, with intervals that resample sessions.

Requests of one session share its history and its luck with the caches, so resampling single requests would give
intervals that are too narrow (design rule 3). Quantiles interpolate linearly between order statistics (numpy's
default), so that min <= p50 <= p99 <= max always holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

CONFIDENT_P99_REQUESTS = 500
"""A P99 from fewer requests rests on the five slowest at most: it is shown with its interval and flagged.

No resample is slower than the slowest request seen, so the interval of a P99 lies too low: simulated loads of 240
requests have it hold the truth in 63 % of cases, 480 in 74 %, 2,560 in 90 %. The change between two settings has no
such bias: its interval falsely excludes 0 in 2 % of cases on each side from 480 requests on.
"""
CONFIDENCE = 0.95
RESAMPLES = 999

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def quantile(values: Floats, q: float) -> float:
    """Return the `q` quantile of raw `values`, which must not be empty."""
    return float(np.quantile(values, q))


class Sessions:
    """Values grouped by session, for statistics of resampled sessions."""

    def __init__(self, values: Floats, session_of: npt.NDArray[np.object_]) -> None:
        order = np.argsort(values, kind="stable")
        self._sorted = values[order]
        self.names, codes = np.unique(session_of.astype(str), return_inverse=True)
        self._codes = codes[order]

    def quantile(self, q: float, times_drawn: npt.NDArray[np.int64] | None = None) -> float:
        """Return the quantile of all values, or of a resample in which session i was drawn `times_drawn[i]` times."""
        if times_drawn is None:
            return quantile(self._sorted, q)
        weights = times_drawn[self._codes]
        total = int(weights.sum())
        if total == 0:
            return float("nan")
        cumulative = np.cumsum(weights)
        rank = q * (total - 1)
        low, high = (
            self._sorted[np.searchsorted(cumulative, k, side="right")] for k in (np.floor(rank), np.ceil(rank))
        )
        return float(low + (high - low) * (rank - np.floor(rank)))

    def interval(self, q: float, *, seed: int = 0) -> Interval | None:
        """Return the bootstrap interval of a quantile; None when there are fewer than two sessions."""
        return _bootstrap(len(self.names), lambda drawn: self.quantile(q, drawn), seed)


def relative_change(
    baseline: Sessions, candidate: Sessions, q: float, *, seed: int = 0
) -> tuple[float, Interval | None]:
    """Return candidate / baseline - 1 at quantile `q` with its interval: negative means that the candidate is faster.

    Both must have played the same sessions: a resample draws the same ones for both, which takes the differences
    between sessions out of the comparison. Sessions that only one of them has are refused.
    """
    if list(baseline.names) != list(candidate.names):
        raise ValueError("the two sides did not play the same sessions")

    def change(drawn: npt.NDArray[np.int64] | None) -> float:
        return candidate.quantile(q, drawn) / baseline.quantile(q, drawn) - 1

    return change(None), _bootstrap(len(baseline.names), change, seed)


def _bootstrap(count: int, statistic: Callable[[npt.NDArray[np.int64]], float], seed: int) -> Interval | None:
    if count < 2:
        return None
    result = stats.bootstrap(
        (np.arange(count),),
        lambda drawn: statistic(np.bincount(drawn.astype(np.int64), minlength=count)),
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=False,
        rng=np.random.default_rng(seed),
    )
    return Interval(float(result.confidence_interval.low), float(result.confidence_interval.high))
