"""One metric as a whole and by group, each with its quantiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field

from harness.metrics import groups
from harness.metrics.definitions import METRICS, Metric, MetricName, Sample
from harness.metrics.groups import Groups
from harness.metrics.latency import Latency, latency
from scenarios.strict import StrictModel


class Breakdown(StrictModel):
    """One metric over some requests. A group without a value is left out."""

    overall: Latency | None = None
    by_turn: dict[str, Latency] = Field(default_factory=dict)
    """Turns `0` to `9`, and `10+`."""
    by_tier: dict[str, Latency] = Field(default_factory=dict)
    """The slowest tier that served the prompt: device, host, storage, none or unknown."""
    by_prompt: dict[str, Latency] = Field(default_factory=dict)
    """Bands of prompt tokens between powers of two, shortest first."""


def breakdowns(records: pd.DataFrame) -> dict[MetricName, Breakdown]:
    """Break every metric down that has a value."""
    found = {metric.name: breakdown(records, metric) for metric in METRICS}
    return {name: each for name, each in found.items() if each.overall is not None}


def breakdown(records: pd.DataFrame, metric: Metric) -> Breakdown:
    """Break one metric of `records` down."""
    sample = metric.sample(records)
    sessions = pd.factorize(records["session_id"], sort=True)[0][sample.rows]
    return Breakdown(
        overall=latency(sample.values_s, sessions),
        by_turn=_by_group(sample, sessions, groups.by_turn(records)),
        by_tier=_by_group(sample, sessions, groups.by_tier(records)),
        by_prompt=_by_group(sample, sessions, groups.by_prompt(records)),
    )


def _by_group(sample: Sample, sessions: npt.NDArray[np.int64], divided: Groups) -> dict[str, Latency]:
    found = {}
    code_of = divided.codes[sample.rows]
    for code in np.unique(code_of).tolist():
        chosen = code_of == code
        summary = latency(sample.values_s[chosen], sessions[chosen])
        if summary is not None:
            found[divided.labels[code]] = summary
    return found
