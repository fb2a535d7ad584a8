"""What a search minimises, and what a setting must keep to.

A constraint is written `METRIC OP LIMIT`, for instance `headroom.host >= 2GiB` or `errors <= 1%`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.store import TrialRecord
from scenarios.errors import ConfigError
from scenarios.strict import nearest

Metric = Callable[[TrialRecord], float | None]


def _steady(record: TrialRecord, quantile: str) -> float | None:
    latency = record.summary.steady if record.summary else None
    return getattr(latency, quantile) if latency else None


METRICS: dict[str, Metric] = {
    "ttft.p99": lambda record: _steady(record, "p99_s"),
    "ttft.p90": lambda record: _steady(record, "p90_s"),
    "ttft.p50": lambda record: _steady(record, "p50_s"),
    "headroom.device": lambda record: record.headroom.device_bytes if record.headroom else None,
    "headroom.host": lambda record: record.headroom.host_bytes if record.headroom else None,
    "errors": lambda record: record.summary.error_rate if record.summary else None,
}
"""Each metric of a trial that a constraint may name: seconds, bytes or a share; None when it was not seen."""

UNITS = {
    "ttft": {"ms": 1e-3, "s": 1.0},
    "headroom": {"MiB": 2.0**20, "GiB": 2.0**30, "MB": 1e6, "GB": 1e9},
    "errors": {"%": 0.01},
}
"""Units by the first word of the metric. One must be given: a bare `headroom.host >= 4` would mean 4 bytes."""
PATTERN = re.compile(r"\s*([A-Za-z0-9._]+)\s*(<=|>=)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z%]*)\s*")

LAUNCHED = "launched"
"""The constraint that every setting has: that it starts, stays up and sustains the load."""


@dataclass(frozen=True)
class Constraint:
    """One bound on one metric."""

    text: str
    metric: str
    at_most: bool
    limit: float

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read `METRIC OP LIMIT`; raise ConfigError that names the nearest metric or unit."""
        found = PATTERN.fullmatch(text)
        if not found or not math.isfinite(float(found[3])):
            raise ConfigError(f"constraint `{text}`: write METRIC <= LIMIT or METRIC >= LIMIT, as in `errors <= 1%`")
        metric, operator, number, unit = found.groups()
        if metric not in METRICS:
            raise ConfigError(f"constraint `{text}`: unknown metric `{metric}`{nearest(metric, list(METRICS))}")
        units, limit = UNITS[metric.split(".")[0]], float(number)
        if unit not in units and (unit or limit):
            fault = f"unknown unit `{unit}` for {metric}" if unit else f"the unit of {metric} is missing"
            raise ConfigError(f"constraint `{text}`: {fault}{nearest(unit, list(units))}")
        return cls(text.strip(), metric, operator == "<=", limit * units.get(unit, 1.0))

    def violation(self, record: TrialRecord) -> float | None:
        """Return how far the record is beyond the limit, as a share of it; <= 0 keeps to it, None was not seen."""
        value = METRICS[self.metric](record)
        if value is None:
            return None
        distance = value - self.limit if self.at_most else self.limit - value
        return distance / abs(self.limit) if self.limit else distance


@dataclass(frozen=True)
class Objective:
    """TTFT P99 of the steady window, under constraints."""

    constraints: tuple[Constraint, ...]
    worst_s: float
    """What a setting without a P99 is told as: the time limit of a load, worse than any that was measured."""

    def value_s(self, record: TrialRecord) -> float:
        """Return what Optuna is told: a finite number, whatever happened (design rule 9)."""
        return record.p99_s if record.usable else self.worst_s

    def violations(self, record: TrialRecord) -> dict[str, float]:
        """Return the violation of each constraint, for failed trials too: <= 0 keeps to it."""
        seen = {c.text: v for c in self.constraints if (v := c.violation(record)) is not None}
        return {LAUNCHED: -1.0 if record.usable else 1.0} | seen

    def broken(self, record: TrialRecord) -> list[str]:
        """List the constraints that the record does not keep to."""
        return [name for name, violation in self.violations(record).items() if violation > 0]

    def feasible(self, record: TrialRecord) -> bool:
        """Whether the record may win."""
        return not self.broken(record)
