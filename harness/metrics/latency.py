"""The quantiles of one metric over one group of requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.statistics import CONFIDENT_P99_REQUESTS, Floats, Sessions
from scenarios.strict import StrictModel

QUANTILES = {"p50_s": 0.50, "p90_s": 0.90, "p95_s": 0.95, "p99_s": 0.99, "p999_s": 0.999}


class Latency(StrictModel):
    """Quantiles of one latency over one group of requests, in seconds."""

    count: int
    """How many values: one a request, or one a gap between deltas."""
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    p999_s: float | None = None
    """None in records of before it was kept."""
    max_s: float
    p99_low_s: float | None = None
    p99_high_s: float | None = None
    confident: bool = False
    """Whether there are enough values for a P99 to be taken at its word."""


def latency(values_s: Floats, session_of: npt.NDArray[Any]) -> Latency | None:
    """Summarise one latency; None when there is no value, which is not the same as zero."""
    if len(values_s) == 0:
        return None
    interval = Sessions(values_s, session_of).interval(0.99)
    found = np.quantile(values_s, list(QUANTILES.values())).tolist()
    return Latency(
        count=len(values_s),
        **dict(zip(QUANTILES, found, strict=True)),
        max_s=float(values_s.max()),
        p99_low_s=interval.low if interval else None,
        p99_high_s=interval.high if interval else None,
        confident=len(values_s) >= CONFIDENT_P99_REQUESTS,
    )
