"""Bounds on metrics, written `METRIC OP LIMIT`, as `headroom.host >= 2GiB` or `ttft.p99{tier=host} <= 1s`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self

from harness.store import TrialRecord
from scenarios.errors import ConfigError
from scenarios.strict import nearest
from tuning.objective.expression import EXPRESSION, metric_of
from tuning.objective.metric import Metric

MOST_VIOLATION = 1e9
"""Samplers add violations up, so even one of a limit near zero is no infinity."""

_PATTERN = re.compile(
    rf"\s*{EXPRESSION}\s*(?P<operator><=|>=)\s*(?P<limit>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)\s*(?P<unit>[A-Za-z%/]*)\s*"
)


@dataclass(frozen=True)
class Constraint:
    """One bound on one metric."""

    text: str
    metric: Metric
    at_most: bool
    limit: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `METRIC OP LIMIT`; raise ConfigError that names the nearest metric or unit."""
        found = _PATTERN.fullmatch(text)
        if not found or not math.isfinite(float(found["limit"])):
            raise ConfigError(f"constraint `{text}`: write METRIC <= LIMIT or METRIC >= LIMIT, as in `errors <= 1%`")
        try:
            metric = metric_of(found["metric"], found["arguments"])
            limit = _limit(found["metric"], metric, float(found["limit"]), found["unit"])
        except ConfigError as problem:
            raise ConfigError(f"constraint `{text}`: {problem}") from None
        return cls(text.strip(), metric, found["operator"] == "<=", limit)

    def violation(self, record: TrialRecord) -> float | None:
        """Return how far the record is beyond the limit, as a share of it; <= 0 keeps to it, None was not seen."""
        value = self.metric.value(record)
        if value is None or not math.isfinite(value):
            return None
        distance = value - self.limit if self.at_most else self.limit - value
        share = distance / abs(self.limit) if self.limit else distance
        return min(max(share, -MOST_VIOLATION), MOST_VIOLATION)


def _limit(name: str, metric: Metric, number: float, unit: str) -> float:
    """Return a limit in the metric's own unit, which must be given: a bare `headroom.host >= 4` would mean 4 bytes."""
    units = metric.unit.written
    if unit not in units and (unit or number):
        fault = f"unknown unit `{unit}` for {name}" if unit else f"the unit of {name} is missing"
        raise ConfigError(f"{fault}{nearest(unit, list(units))}")
    return number * units.get(unit, 1.0)
