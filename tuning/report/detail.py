"""Every metric of the compared settings in detail: quantiles by turn, tier and prompt length, and goodput."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from harness.metrics import METRICS, Breakdown, Goodput, Latency, Metric, MetricName, Slo, breakdowns, goodput
from harness.store import TrialRecord
from harness.window import Window
from scenarios.strict import StrictModel
from tuning.report import words
from tuning.report.played import Played

DIVISIONS = {"by_tier": "served from", "by_turn": "turn", "by_prompt": "prompt tokens"}
"""Fields of a breakdown, and what people read."""


class Detail(StrictModel):
    """What one setting did to its requests, over the trials that the report's plots show."""

    role: str
    label: str
    trial_numbers: tuple[int, ...]
    sustained: bool
    ended: dict[str, int] = Field(default_factory=dict)
    """Counted requests by how they ended, of those that did: only `ok` and `cancelled` enter latencies."""
    metrics: dict[MetricName, Breakdown] = Field(default_factory=dict)
    """Empty when the load was not sustained: such latencies are never compared as numbers (design rule 12)."""
    windows: tuple[Window, ...] = ()
    """The steady window of each trial."""
    goodput: Goodput | None = None
    """None when no service level was given, or no request could be judged."""

    @property
    def measured(self) -> Iterator[tuple[Metric, Breakdown]]:
        """Yield each metric that has a value, in the order of showing."""
        for metric in METRICS:
            if metric.name in self.metrics:
                yield metric, self.metrics[metric.name]


def details(settings: Sequence[Played], slo: Slo | None) -> tuple[Detail, ...]:
    """Summarise the requests of each setting, all of its trials taken together."""
    return tuple(
        Detail(
            role=setting.role,
            label=setting.label,
            trial_numbers=tuple(record.number for record in setting.records),
            sustained=setting.sustained,
            ended=_ended(setting.records),
            metrics=breakdowns(setting.counted) if setting.sustained else {},
            windows=setting.windows,
            goodput=goodput(setting.counted, slo, seconds=setting.seconds) if slo else None,
        )
        for setting in settings
    )


def _ended(records: Sequence[TrialRecord]) -> dict[str, int]:
    summaries = [record.summary for record in records if record.summary]
    found = {
        how.replace("_", " "): sum(getattr(summary, how) for summary in summaries)
        for how in ("ok", "cancelled", "failed", "timed_out", "cut", "not_played")
    }
    return {how: number for how, number in found.items() if number}


def groups(found: Breakdown) -> Iterator[tuple[str, str, Latency]]:
    """Yield every group of a breakdown: what divides it, the group's name, its quantiles."""
    for field, title in DIVISIONS.items():
        for name, latency in getattr(found, field).items():
            yield title, name, latency


def in_words(found: Goodput) -> str:
    """Say a goodput in a sentence."""
    unknown = f", {words.count(found.unknown)} without a value to hold against a limit" if found.unknown else ""
    return (
        f"goodput under {found.slo}: {words.share(found.share)} of {words.count(found.judged)} requests "
        f"{words.share_span(found.share_low, found.share_high)}, {found.requests_per_s:.2f} requests/s; not judged: "
        f"{words.count(found.cut)} that the end of the load cut{unknown}"
    )
