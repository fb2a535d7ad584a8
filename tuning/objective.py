"""What a search minimises, and what a setting must keep to.

A constraint is written `METRIC OP LIMIT`, for instance `headroom.host >= 2GiB` or `errors <= 1%`. A latency may be
that of one group of requests: `ttft.p99{tier=host} <= 500ms`, `itl.p99{turn=0} <= 80ms`, `e2e.p90{prompt=4k-8k} <= 9s`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.metrics import PROMPT_BANDS, QUANTILES, TIERS, TURNS, Breakdown, MetricName
from harness.store import TrialRecord
from scenarios.errors import ConfigError
from scenarios.strict import nearest

Metric = Callable[[TrialRecord], float | None]
FIELDS = (*QUANTILES, "max_s")


LATENCIES = (MetricName.TTFT, MetricName.TPOT, MetricName.ITL, MetricName.E2E)
GROUPS = {"turn": TURNS, "tier": TIERS, "prompt": PROMPT_BANDS}
"""How the requests of a latency may be divided, and the groups of each division."""


def _quantile(name: MetricName, field: str) -> Metric:
    def of(record: TrialRecord) -> float | None:
        summary = record.summary
        if summary is None:
            return None
        # Records of before the breakdowns have the TTFT of the steady window all the same.
        found = summary.steady if name is MetricName.TTFT else summary.metrics.get(name, Breakdown()).overall
        return getattr(found, field, None)

    return of


METRICS: dict[str, Metric] = {
    **{f"{name}.{field.removesuffix('_s')}": _quantile(name, field) for name in LATENCIES for field in FIELDS},
    "headroom.device": lambda record: record.headroom.device_bytes if record.headroom else None,
    "headroom.host": lambda record: record.headroom.host_bytes if record.headroom else None,
    "headroom.cgroup": lambda record: record.headroom.cgroup_bytes if record.headroom else None,
    "headroom.device.double": lambda record: record.headroom.device_double_bytes if record.headroom else None,
    "headroom.host.double": lambda record: record.headroom.host_double_bytes if record.headroom else None,
    "errors": lambda record: record.summary.error_rate if record.summary else None,
}
"""Each metric of a trial that a constraint may name: seconds, bytes or a share; None when it was not seen."""

UNITS: dict[str, dict[str, float]] = {
    **{name.value: {"ms": 1e-3, "s": 1.0} for name in LATENCIES},
    "headroom": {"MiB": 2.0**20, "GiB": 2.0**30, "MB": 1e6, "GB": 1e9},
    "errors": {"%": 0.01},
}
"""Units by the first word of the metric. One must be given: a bare `headroom.host >= 4` would mean 4 bytes."""
PATTERN = re.compile(
    r"\s*(?P<metric>[A-Za-z0-9._]+)\s*(\{\s*(?P<division>\w+)\s*=\s*(?P<label>[\w+-]+)\s*\})?"
    r"\s*(?P<operator><=|>=)\s*(?P<limit>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)\s*(?P<unit>[A-Za-z%]*)\s*"
)

LAUNCHED = "launched"
"""The constraint that every setting has: that it starts, stays up and sustains the load."""


@dataclass(frozen=True)
class Group:
    """One group of the requests of a trial, such as those that the host tier served."""

    division: str
    label: str

    @classmethod
    def parse(cls, division: str, label: str, *, metric: str) -> Group:
        """Check the group that was named for `metric`; raise ConfigError that says what there is."""
        if metric.split(".")[0] not in LATENCIES:
            raise ConfigError(f"`{metric}` has no groups; leave {{{division}={label}}} out")
        if division not in GROUPS:
            raise ConfigError(f"unknown group `{division}`{nearest(division, GROUPS)}")
        if label not in GROUPS[division]:
            raise ConfigError(f"unknown {division} `{label}`{nearest(label, GROUPS[division])}")
        return cls(division, label)

    def value(self, metric: str, record: TrialRecord) -> float | None:
        """Return the metric of this group; None when the trial had no such request."""
        name, _, quantile = metric.partition(".")
        metrics = record.summary.metrics if record.summary else {}
        by_label = getattr(metrics.get(MetricName(name), Breakdown()), f"by_{self.division}")
        return getattr(by_label.get(self.label), f"{quantile}_s", None)


@dataclass(frozen=True)
class Constraint:
    """One bound on one metric."""

    text: str
    metric: str
    at_most: bool
    limit: float
    group: Group | None = None
    """None: all requests of the trial."""

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read `METRIC OP LIMIT`; raise ConfigError that names the nearest metric or unit."""
        found = PATTERN.fullmatch(text)
        if not found or not math.isfinite(float(found["limit"])):
            raise ConfigError(f"constraint `{text}`: write METRIC <= LIMIT or METRIC >= LIMIT, as in `errors <= 1%`")
        metric, unit, limit = found["metric"], found["unit"], float(found["limit"])
        if metric not in METRICS:
            raise ConfigError(f"constraint `{text}`: unknown metric `{metric}`{nearest(metric, list(METRICS))}")
        units = UNITS[metric.split(".")[0]]
        if unit not in units and (unit or limit):
            fault = f"unknown unit `{unit}` for {metric}" if unit else f"the unit of {metric} is missing"
            raise ConfigError(f"constraint `{text}`: {fault}{nearest(unit, list(units))}")
        try:
            group = Group.parse(found["division"], found["label"], metric=metric) if found["division"] else None
        except ConfigError as problem:
            raise ConfigError(f"constraint `{text}`: {problem}") from None
        return cls(text.strip(), metric, found["operator"] == "<=", limit * units.get(unit, 1.0), group)

    def violation(self, record: TrialRecord) -> float | None:
        """Return how far the record is beyond the limit, as a share of it; <= 0 keeps to it, None was not seen."""
        value = self.group.value(self.metric, record) if self.group else METRICS[self.metric](record)
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
