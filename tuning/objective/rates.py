"""Goodput and throughput: what of a load was answered, and in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import pandas as pd

from harness.metrics import Slo
from harness.metrics.goodput import judge
from harness.statistics import Ratio, Statistic
from harness.store import TrialRecord
from harness.throughput import answers_by_session
from scenarios.errors import ConfigError
from scenarios.plan import Phase
from tuning.objective.units import REQUESTS_PER_S, SHARE, TOKENS_PER_S, Unit

GOODPUT = "goodput"
EXAMPLE = f"{GOODPUT}{{ttft=500ms,tpot=60ms}}"
LEAST_S = 1e-9
"""Times are recorded in whole nanoseconds, so limits are kept to them."""


@dataclass(frozen=True)
class GoodputMetric:
    """The share of counted requests that meet every limit of a service level."""

    slo: Slo
    unit: Unit = SHARE
    maximised: bool = True

    @classmethod
    def parse(cls, text: str, arguments: dict[str, str]) -> Self:
        """Take the limits in the braces; raise ConfigError that names the limit at fault."""
        if not arguments:
            raise ConfigError(f"`{text}` needs a service level in braces, as in `{EXAMPLE}`")
        slo = Slo.read(", ".join(f"{name}<={limit}" for name, limit in arguments.items()))
        limits = {
            field: max(round(limit_s, 9), LEAST_S) for field, limit_s in slo.model_dump(exclude_none=True).items()
        }
        return cls(Slo(**limits))

    @property
    def text(self) -> str:
        """As a user writes it."""
        limits = self.slo.model_dump(exclude_none=True)
        given = (f"{field.removesuffix('_s')}={_ms(limit_s)}ms" for field, limit_s in limits.items())
        return f"{GOODPUT}{{{','.join(given)}}}"

    @property
    def title(self) -> str:
        """As people read it."""
        return self.text

    def value(self, record: TrialRecord) -> float | None:
        """Return the share; None when no request was judged, or not under this service level."""
        told = (record.summary.goodput if record.summary else None) or ()
        return next((each.share for each in told if each.slo == self.slo), None)

    def sample(self, load: pd.DataFrame) -> pd.DataFrame:
        """Return a row for each request that was judged."""
        requests = load[load["phase"] == Phase.COUNTED]
        verdicts = judge(requests, self.slo)
        rows = requests[["session_id", "turn"]].assign(met=verdicts.met.astype(np.float64))
        return rows[verdicts.judged]

    def statistic(self, sample: pd.DataFrame) -> Statistic:
        """Return the share of the rows that met the level."""
        return Ratio(sample["met"].to_numpy(), np.ones(len(sample)), sample["session"].to_numpy(dtype=object))


@dataclass(frozen=True)
class ThroughputMetric:
    """What the engine answers in a second of the window."""

    text: str
    title: str
    column: Literal["requests", "output_tokens"]
    unit: Unit
    maximised: bool = True

    def value(self, record: TrialRecord) -> float | None:
        """Return it in counts a second; None when there was no load."""
        summary = record.summary
        if summary is None:
            return None
        return summary.requests_per_s if self.column == "requests" else summary.output_tokens_per_s

    def sample(self, load: pd.DataFrame) -> pd.DataFrame:
        """Return a row for each session that lived in the window."""
        answers = answers_by_session(load)
        return answers[[self.column, "seconds"]].reset_index().assign(turn=0)

    def statistic(self, sample: pd.DataFrame) -> Statistic:
        """Return answers over seconds."""
        parts, seconds = sample[self.column].to_numpy(), sample["seconds"].to_numpy()
        return Ratio(parts, seconds, sample["session"].to_numpy(dtype=object))


THROUGHPUTS = {
    metric.text: metric
    for metric in (
        ThroughputMetric("throughput.tokens", "throughput", "output_tokens", TOKENS_PER_S),
        ThroughputMetric("throughput.requests", "throughput", "requests", REQUESTS_PER_S),
    )
}


def _ms(limit_s: float) -> str:
    return f"{1e3 * limit_s:.6f}".rstrip("0").rstrip(".")
