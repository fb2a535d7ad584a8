"""What a histogram of the engine says about one window: bounds, never a point, and never for TTFT.

SGLang's first TTFT bucket ends at 100 ms, so the P99 of a small model would come from the edge of a bucket;
TTFT percentiles come from the client's records.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from harness.errors import TelemetryError
from harness.telemetry.metrics import MetricsSnapshot


@dataclass(frozen=True, slots=True)
class HistogramWindow:
    """The observations of one histogram between two scrapes of one engine epoch, over all its series."""

    count: int
    total: float
    """Sum of the observations, in the histogram's own unit."""
    buckets: tuple[tuple[float, int], ...]
    """Upper bound and number of observations up to it, ascending; the last bound is infinite."""

    @property
    def mean(self) -> float | None:
        """Mean of the observations; None when there is none."""
        return self.total / self.count if self.count else None

    def quantile_bounds(self, quantile: float) -> tuple[float, float] | None:
        """Bound the nearest-rank quantile (0 < q <= 1) by its bucket; None when nothing was observed."""
        if not self.count:
            return None
        rank = math.ceil(quantile * self.count)
        lower = 0.0
        for upper, observed in self.buckets:
            if observed >= rank:
                return lower, upper
            lower = upper
        return lower, math.inf

    @classmethod
    def between(cls, before: MetricsSnapshot, after: MetricsSnapshot, name: str) -> HistogramWindow:
        """Subtract two scrapes; raise TelemetryError when their buckets differ or an observation was lost."""
        start, end = _buckets(before, name), _buckets(after, name)
        if start and start.keys() != end.keys():
            raise TelemetryError(
                f"the buckets of {name} changed between two scrapes; compare scrapes of one engine process"
            )
        buckets = tuple((bound, round(end[bound] - start.get(bound, 0.0))) for bound in sorted(end))
        if any(observed < 0 for _, observed in buckets):
            raise TelemetryError(f"{name} fell between two scrapes; compare scrapes of one engine process")
        count = _sum(after, f"{name}_count") - _sum(before, f"{name}_count")
        total = _sum(after, f"{name}_sum") - _sum(before, f"{name}_sum")
        return cls(count=round(count), total=total, buckets=buckets)


def _buckets(snapshot: MetricsSnapshot, name: str) -> dict[float, float]:
    buckets: defaultdict[float, float] = defaultdict(float)
    for sample in snapshot.named(f"{name}_bucket"):
        buckets[float(sample.labels["le"])] += sample.value
    return buckets


def _sum(snapshot: MetricsSnapshot, name: str) -> float:
    return sum(sample.value for sample in snapshot.named(name))
