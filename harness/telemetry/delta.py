"""What the engine's caches did between two scrapes: the figures of one load window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness.telemetry import catalog
from harness.telemetry.catalog import MetricSpec
from harness.telemetry.metrics import (
    EngineGauges,
    MetricSample,
    MetricsSnapshot,
    Ranks,
    combine,
    counters_dropped,
)

Pick = Callable[[MetricSample], bool]


@dataclass(frozen=True, slots=True)
class CacheDelta:
    """Counts of one load window and one engine epoch. None means that the engine does not tell, never zero.

    After `epoch_reset` the counts are those of the new engine process alone, and the trial has failed.
    """

    start_ns: int
    end_ns: int
    sglang_metrics_version: str
    epoch_reset: bool

    requests: int | None
    aborted: int | None
    retracted: int | None
    prompt_tokens: int | None
    generation_tokens: int | None

    cached_tokens: int | None
    """Over all tiers, and the requests that carried no tier."""
    device_cached_tokens: int | None
    host_cached_tokens: int | None
    storage_cached_tokens: int | None
    untiered_cached_tokens: int | None
    """Of requests that carried no tier; when there are any, a tier that was not seen is unknown."""
    hit_rate: float | None
    """Share of the prompt tokens that came from a cache; None when no prompt was counted."""

    evicted_tokens: int | None
    """Device slots freed, also those that were dropped and not kept in host memory."""
    eviction_count: int | None
    eviction_seconds: float | None

    load_back_tokens: int | None
    load_back_count: int | None
    """Reloads in 0.5.15; merged copies in 0.5.23."""
    load_back_seconds: float | None
    load_back_seconds_is_bookkeeping: bool
    """True for 0.5.15, whose timer stops before the copy starts: never a transfer time."""
    load_back_bytes: int | None
    backup_tokens: int | None

    at_end: EngineGauges
    absent: tuple[str, ...]
    """Series that the engine has not made yet, read as zero because it is known to have the feature."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Say what is odd about these counts, one sentence each."""
        found = []
        if self.epoch_reset:
            found.append("the engine's counters started again inside the window: another process answered")
        if self.backup_tokens and self.host_cached_tokens == 0:
            found.append(f"host tier was written ({self.backup_tokens} tokens) but never read")
        if self.untiered_cached_tokens:
            found.append(f"{self.untiered_cached_tokens} cached tokens came without their tier")
        return tuple(found)

    def disagreement(self, client_cached_tokens: int | None) -> str | None:
        """Say how the cached tokens told to the client differ from the engine's own; None if they agree."""
        if self.cached_tokens is None or self.cached_tokens == (client_cached_tokens or 0):
            return None
        told = (
            "nothing (launch with --enable-cache-report)"
            if client_cached_tokens is None
            else f"{client_cached_tokens} tokens"
        )
        return (
            f"client and server cache counts disagree: the client was told {told}, "
            f"the engine counted {self.cached_tokens} tokens"
        )

    @classmethod
    def between(cls, before: MetricsSnapshot, after: MetricsSnapshot, ranks: Ranks | None = None) -> CacheDelta:
        """Subtract two scrapes of one engine; `ranks` is needed when it runs on more than one GPU."""
        epoch_reset = counters_dropped(before, after)
        window = _Window(MetricsSnapshot(before.taken_ns) if epoch_reset else before, after, ranks or Ranks())
        untiered = window.count(catalog.CACHED_TOKENS, _from("total"), quiet=True)
        tiers = [
            window.count(catalog.CACHED_TOKENS, pick, label=f'{{cache_source="{tier}"}}', missing=not untiered)
            for tier, pick in (
                ("device", _from("device")),
                ("host", _from("host")),
                ("storage_*", _from_storage),
            )
        ]
        prompt_tokens = window.count(catalog.PROMPT_TOKENS)
        cached_tokens = window.count(catalog.CACHED_TOKENS)
        load_back_seconds = window.seconds(catalog.LOAD_BACK_SECONDS)
        return cls(
            start_ns=before.taken_ns,
            end_ns=after.taken_ns,
            sglang_metrics_version=after.version,
            epoch_reset=epoch_reset,
            requests=window.count(catalog.REQUESTS),
            aborted=window.count(catalog.ABORTED),
            retracted=window.count(catalog.RETRACTED),
            prompt_tokens=prompt_tokens,
            generation_tokens=window.count(catalog.GENERATION_TOKENS),
            cached_tokens=cached_tokens,
            device_cached_tokens=tiers[0],
            host_cached_tokens=tiers[1],
            storage_cached_tokens=tiers[2],
            untiered_cached_tokens=untiered,
            hit_rate=cached_tokens / prompt_tokens if prompt_tokens and cached_tokens is not None else None,
            evicted_tokens=window.count(catalog.EVICTED_TOKENS),
            eviction_count=window.observations(catalog.EVICTION_SECONDS),
            eviction_seconds=window.seconds(catalog.EVICTION_SECONDS),
            load_back_tokens=window.count(catalog.LOAD_BACK_TOKENS, _of_kv_pool),
            load_back_count=window.observations(catalog.LOAD_BACK_SECONDS),
            load_back_seconds=load_back_seconds,
            load_back_seconds_is_bookkeeping=load_back_seconds is not None and after.version == catalog.V15,
            load_back_bytes=window.count(catalog.LOAD_BACK_BYTES),
            backup_tokens=window.count(catalog.BACKUP_TOKENS, _of_kv_pool),
            at_end=EngineGauges.of(after),
            absent=tuple(window.absent),
        )


@dataclass(frozen=True, slots=True)
class CounterIncrease:
    """How much one counter grew over a series of readings, and how often it started again."""

    increase: float
    resets: int


def counter_increase(readings: Iterable[float]) -> CounterIncrease:
    """Add up a counter's growth; after a drop the new reading counts from zero, as Prometheus does."""
    increase, resets = 0.0, 0
    previous: float | None = None
    for reading in readings:
        if previous is not None:
            dropped = reading < previous
            resets += dropped
            increase += reading if dropped else reading - previous
        previous = reading
    return CounterIncrease(increase, resets)


def _from(source: str) -> Pick:
    return lambda sample: sample.labels.get("cache_source") == source


def _from_storage(sample: MetricSample) -> bool:
    return sample.labels.get("cache_source", "").startswith("storage")


def _of_kv_pool(sample: MetricSample) -> bool:
    # 0.5.23 counts the pools of hybrid models apart; their tokens are not comparable.
    return sample.labels.get("pool", "kv") == "kv"


def _any(_: MetricSample) -> bool:
    return True


class _Window:
    """Subtracts counters and notes which of them the engine has not made."""

    def __init__(self, before: MetricsSnapshot, after: MetricsSnapshot, ranks: Ranks) -> None:
        self._before = before
        self._after = after
        self._ranks = ranks
        self.absent: list[str] = []

    def count(
        self,
        spec: MetricSpec,
        pick: Pick = _any,
        *,
        label: str = "",
        missing: bool = True,
        quiet: bool = False,
    ) -> int | None:
        """Return a counter's growth; a missing series is zero when `missing`, and noted unless `quiet`."""
        grown = self._grown(spec, spec.name, pick)
        if grown is None and missing and self._known(spec):
            if not quiet and spec.name + label not in self.absent:
                self.absent.append(spec.name + label)
            return 0
        return None if grown is None else round(grown)

    def observations(self, spec: MetricSpec) -> int | None:
        """Return how many observations a histogram got."""
        grown = self._of_histogram(spec, "_count")
        return None if grown is None else round(grown)

    def seconds(self, spec: MetricSpec) -> float | None:
        """Return how much a histogram's sum grew, in seconds."""
        return self._of_histogram(spec, "_sum")

    def _of_histogram(self, spec: MetricSpec, suffix: str) -> float | None:
        grown = self._grown(spec, spec.name + suffix, _any)
        if grown is None and self._known(spec):
            if spec.name not in self.absent:
                self.absent.append(spec.name)
            return 0.0
        return grown

    def _grown(self, spec: MetricSpec, name: str, pick: Pick) -> float | None:
        now = combine(spec, filter(pick, self._after.named(name)), self._ranks)
        if now is None:
            return None
        # A series starts at its first event, so one that was missing before stood at zero.
        return now - (combine(spec, filter(pick, self._before.named(name)), self._ranks) or 0.0)

    def _known(self, spec: MetricSpec) -> bool:
        return spec.feature in self._after.features and self._after.version in spec.versions
