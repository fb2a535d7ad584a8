"""What one scrape of the engine's `/metrics` says, and how its ranks become one figure."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from prometheus_client.parser import text_string_to_metric_families

from harness.errors import TelemetryError
from harness.telemetry import catalog
from harness.telemetry.catalog import METRICS, V15, V23, Feature, Kind, MetricSpec, RankRule


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One line of a scrape. `cumulative` says that it may only grow while the engine lives."""

    name: str
    labels: Mapping[str, str]
    value: float
    cumulative: bool

    @property
    def series(self) -> tuple[str, frozenset[tuple[str, str]]]:
        """Identify the series that this sample belongs to."""
        return self.name, frozenset(self.labels.items())


@dataclass(frozen=True, slots=True)
class Ranks:
    """How the engine is spread over GPUs: the sizes given to `--tp-size`, `--pp-size` and `--dp-size`."""

    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    dp_attention: bool = False
    """With `--enable-dp-attention` the data-parallel ranks share the tensor-parallel ones."""

    @property
    def copies(self) -> int:
        """Count the processes that count one and the same token."""
        tensor = self.tp_size // self.dp_size if self.dp_attention else self.tp_size
        return max(1, tensor) * self.pp_size


@dataclass(frozen=True)
class MetricsSnapshot:
    """One scrape. `taken_ns` is CLOCK_MONOTONIC."""

    taken_ns: int
    samples: tuple[MetricSample, ...] = ()

    @classmethod
    def parse(cls, text: str, *, taken_ns: int | None = None, where: str = "/metrics") -> MetricsSnapshot:
        """Parse a scrape in the Prometheus text format, taken at `taken_ns`, which is now unless it is given.

        Raises TelemetryError, naming `where`, when the text is no such format.
        """
        try:
            samples = [
                MetricSample(line.name, line.labels, float(line.value), _is_cumulative(line.name, family.type))
                for family in text_string_to_metric_families(text)
                for line in family.samples
            ]
        except (ValueError, IndexError, KeyError) as problem:
            raise TelemetryError(
                f"{where} does not answer in the Prometheus text format ({problem}); is it an SGLang server?"
            ) from None
        return cls(time.monotonic_ns() if taken_ns is None else taken_ns, tuple(samples))

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[MetricSample]]:
        by_name: defaultdict[str, list[MetricSample]] = defaultdict(list)
        for sample in self.samples:
            by_name[sample.name].append(sample)
        return dict(by_name)

    def named(self, name: str) -> Sequence[MetricSample]:
        """Return the samples of exactly this name; empty when the engine has not made the series yet."""
        return self._by_name.get(name, ())

    def has(self, spec: MetricSpec) -> bool:
        """Say whether any series of the metric exists."""
        return bool(self.named(f"{spec.name}_count" if spec.kind is Kind.HISTOGRAM else spec.name))

    @cached_property
    def features(self) -> frozenset[Feature]:
        """The features that the engine is known to have, from the metrics that exist."""
        return frozenset(spec.feature for spec in METRICS if self.has(spec))

    @cached_property
    def version(self) -> str:
        """The SGLang version whose metrics these are: 0.5.23 when any of its own exists, else 0.5.15."""
        return V23 if any(self.has(spec) for spec in METRICS if spec.versions == (V23,)) else V15


def _is_cumulative(name: str, family_type: str) -> bool:
    # A histogram's `_sum` is left out: a negative observation may lower it while the engine lives.
    if family_type == "counter":
        return name.endswith("_total")
    if family_type == "unknown":
        return name.endswith(("_total", "_bucket", "_count"))
    return family_type == "histogram" and name.endswith(("_bucket", "_count"))


def counters_dropped(before: MetricsSnapshot, after: MetricsSnapshot) -> bool:
    """Say whether any counter fell or vanished, which means that another engine process answers."""
    now = {sample.series: sample.value for sample in after.samples}
    return any(now.get(sample.series, -math.inf) < sample.value for sample in before.samples if sample.cumulative)


def combine(spec: MetricSpec, samples: Iterable[MetricSample], ranks: Ranks) -> float | None:
    """Make one figure of the series of all ranks by the metric's rank rule; None when there is no value."""
    valued = [sample for sample in samples if not math.isnan(sample.value)]
    if not valued:
        return None
    if spec.rank_rule is RankRule.FULLEST:
        return max(sample.value for sample in valued)
    if spec.rank_rule is RankRule.ADD:
        return sum(sample.value for sample in valued)
    if spec.kind is not Kind.GAUGE and not any("tp_rank" in sample.labels for sample in valued):
        # 0.5.15's cache counters carry no rank, so the multiprocess scrape has added all ranks already.
        return sum(sample.value for sample in valued) / ranks.copies
    return sum(sample.value for sample in _first_ranks(valued))


def _first_ranks(samples: Sequence[MetricSample]) -> list[MetricSample]:
    # Under data-parallel attention the ranks of replica 1 do not start at tp_rank 0, so each replica has its
    # own first one.
    replicas: defaultdict[str, list[MetricSample]] = defaultdict(list)
    for sample in samples:
        replicas[sample.labels.get("dp_rank", "")].append(sample)
    chosen = []
    for replica in replicas.values():
        first = min(_rank(sample) for sample in replica)
        chosen += [sample for sample in replica if _rank(sample) == first]
    return chosen


def _rank(sample: MetricSample) -> tuple[int, int]:
    return int(sample.labels.get("pp_rank") or 0), int(sample.labels.get("tp_rank") or 0)


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """The state of the engine at one scrape; None where the engine does not show it."""

    running_requests: float | None
    queued_requests: float | None
    generation_tokens_per_s: float | None
    token_usage: float | None
    """Share of the device KV pool in use, of the fullest rank."""
    max_total_num_tokens: int | None
    host_used_tokens: int | None
    host_total_tokens: int | None

    @property
    def host_fill(self) -> float | None:
        """Share of the host KV pool in use, from the sums over ranks."""
        if self.host_used_tokens is None or not self.host_total_tokens:
            return None
        return self.host_used_tokens / self.host_total_tokens

    @classmethod
    def of(cls, snapshot: MetricsSnapshot) -> EngineGauges:
        """Read the gauges of one scrape."""
        return cls(
            running_requests=_gauge(snapshot, catalog.RUNNING_REQUESTS),
            queued_requests=_gauge(snapshot, catalog.QUEUED_REQUESTS),
            generation_tokens_per_s=_gauge(snapshot, catalog.THROUGHPUT),
            token_usage=_gauge(snapshot, catalog.TOKEN_USAGE),
            max_total_num_tokens=_whole(_gauge(snapshot, catalog.DEVICE_POOL_TOKENS)),
            host_used_tokens=_whole(_gauge(snapshot, catalog.HOST_USED_TOKENS)),
            host_total_tokens=_whole(_gauge(snapshot, catalog.HOST_TOTAL_TOKENS)),
        )


def _gauge(snapshot: MetricsSnapshot, spec: MetricSpec) -> float | None:
    return combine(spec, snapshot.named(spec.name), Ranks())


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
