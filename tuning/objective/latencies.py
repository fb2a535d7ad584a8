"""Latencies: a quantile of TTFT, TPOT, ITL or end-to-end time, of all requests or of one group of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from harness.metrics import METRICS, PROMPT_BANDS, QUANTILES, TIERS, TURNS, Breakdown, Latency, MetricName, groups
from harness.statistics import Quantile, Sessions, Statistic
from harness.store import TrialRecord
from scenarios.errors import ConfigError
from scenarios.plan import Phase
from scenarios.strict import nearest
from tuning.objective.units import SECONDS, Unit

LATENCIES = (MetricName.TTFT, MetricName.TPOT, MetricName.ITL, MetricName.E2E)
STATISTICS = {field.removesuffix("_s"): q for field, q in QUANTILES.items()} | {"max": 1.0}
NAMES = tuple(f"{name}.{statistic}" for name in LATENCIES for statistic in STATISTICS)
WINDOW = "window"
STEADY, WHOLE = WINDOWS = ("steady", "whole")
"""The counted requests, or all that were played, warm-up and stampede included: kept of TTFT alone."""
GROUPS = {"turn": TURNS, "tier": TIERS, "prompt": PROMPT_BANDS, WINDOW: WINDOWS}
"""How the requests of a latency may be divided, and the groups of each division."""

_DEFINITIONS = {metric.name: metric for metric in METRICS}
_DIVIDED = {"turn": groups.by_turn, "tier": groups.by_tier, "prompt": groups.by_prompt}


@dataclass(frozen=True)
class Group:
    """One group of the requests of a trial, such as those that the host tier served."""

    division: str
    label: str

    @classmethod
    def parse(cls, division: str, label: str) -> Self:
        """Check a group; raise ConfigError that says what there is."""
        if division not in GROUPS:
            raise ConfigError(f"unknown group `{division}`{nearest(division, GROUPS)}")
        if label not in GROUPS[division]:
            raise ConfigError(f"unknown {division} `{label}`{nearest(label, GROUPS[division])}")
        return cls(division, label)

    def __str__(self) -> str:
        return f"{{{self.division}={self.label}}}"


@dataclass(frozen=True)
class LatencyMetric:
    """One quantile of one latency."""

    name: MetricName
    statistic_name: str
    """A key of STATISTICS."""
    group: Group | None = None
    """None: all counted requests of the trial."""
    unit: Unit = SECONDS
    maximised: bool = False

    @classmethod
    def parse(cls, text: str, arguments: dict[str, str]) -> Self:
        """Take one of NAMES and the arguments in its braces; raise ConfigError for a group that it does not have."""
        name, _, statistic = text.partition(".")
        if len(arguments) > 1:
            raise ConfigError(f"`{text}` takes one group of requests; leave the others out of the braces")
        group = next((Group.parse(*argument) for argument in arguments.items()), None)
        if group and group.division == WINDOW and name != MetricName.TTFT:
            raise ConfigError(f"`{text}` is kept of the steady window alone; leave {group} out")
        return cls(MetricName(name), statistic, None if group == Group(WINDOW, STEADY) else group)

    @property
    def text(self) -> str:
        """As a user writes it."""
        return f"{self.name}.{self.statistic_name}{self.group or ''}"

    @property
    def title(self) -> str:
        """As people read it."""
        statistic = self.statistic_name
        return " ".join(
            [
                _DEFINITIONS[self.name].title,
                statistic if statistic == "max" else statistic.upper().replace("P999", "P99.9"),
                *([str(self.group)] if self.group else []),
            ]
        )

    def value(self, record: TrialRecord) -> float | None:
        """Return it in seconds; None when the trial had no such request."""
        return getattr(self._latency(record), f"{self.statistic_name}_s", None)

    def sample(self, load: pd.DataFrame) -> pd.DataFrame:
        """Return a row for each value; a request may have several, as it has gaps between tokens."""
        whole = self.group is not None and self.group.division == WINDOW
        requests = load if whole else load[load["phase"] == Phase.COUNTED]
        found = _DEFINITIONS[self.name].sample(requests)
        rows = requests[["session_id", "turn"]].iloc[found.rows].assign(value=found.values_s)
        if self.group is None or whole:
            return rows
        divided = _DIVIDED[self.group.division](requests)
        in_group: pd.DataFrame = rows.loc[divided.codes[found.rows] == divided.labels.index(self.group.label)]
        return in_group

    def statistic(self, sample: pd.DataFrame) -> Statistic:
        """Return the quantile of the rows."""
        values = sample["value"].to_numpy(dtype=np.float64)
        return Quantile(Sessions(values, sample["session"].to_numpy(dtype=object)), STATISTICS[self.statistic_name])

    def _latency(self, record: TrialRecord) -> Latency | None:
        summary = record.summary
        if summary is None:
            return None
        found = summary.metrics.get(self.name, Breakdown())
        if self.group is None:
            # Records of before the breakdowns have the TTFT of the steady window all the same.
            return summary.steady if self.name is MetricName.TTFT else found.overall
        if self.group.division == WINDOW:
            return summary.whole_run
        by_label: dict[str, Latency] = getattr(found, f"by_{self.group.division}")
        return by_label.get(self.group.label)


TTFT_P99 = LatencyMetric(MetricName.TTFT, "p99")
"""What a search minimises unless it is told otherwise: TTFT P99 of the steady window."""
