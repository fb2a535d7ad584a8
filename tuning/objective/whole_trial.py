"""Metrics that a trial has as a whole, and that no single request tells: memory, errors, reloads, cached tokens.

They may be bounded, and searched as second goals, but no interval could prove a winner by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.store import TrialRecord
from harness.telemetry import CacheDelta, Headroom
from tuning.objective.units import BYTES, SHARE, Unit


@dataclass(frozen=True)
class TrialMetric:
    """One metric of a whole trial."""

    text: str
    title: str
    unit: Unit
    maximised: bool
    of: Callable[[TrialRecord], float | None]

    def value(self, record: TrialRecord) -> float | None:
        """Return it in bytes or as a share; None when it was not seen."""
        return self.of(record)


def _headroom(name: str, title: str, of: Callable[[Headroom], int | None]) -> TrialMetric:
    def value(record: TrialRecord) -> float | None:
        return of(record.headroom) if record.headroom else None

    return TrialMetric(f"headroom.{name}", f"least {title}", BYTES, True, value)


def _cached(name: str, title: str, of: Callable[[CacheDelta], int | None]) -> TrialMetric:
    def value(record: TrialRecord) -> float | None:
        cache = record.cache
        tokens = of(cache) if cache else None
        return tokens / cache.prompt_tokens if cache and cache.prompt_tokens and tokens is not None else None

    return TrialMetric(name, title, SHARE, True, value)


def _errors(record: TrialRecord) -> float | None:
    return record.summary.error_rate if record.summary else None


def _host_memory(record: TrialRecord) -> float | None:
    """Return the bytes of all host pools: seen, or else foretold, as of a launch that failed."""
    if not record.setting.hicache:
        return 0.0
    known = (memory.host_pool_bytes for memory in (record.seen, record.forecast) if memory)
    return next((float(found) for found in known if found is not None), None)


def _reload_bytes(record: TrialRecord) -> float | None:
    """Return the bytes that were copied back to the device under load; without HiCache there are none."""
    if not record.setting.hicache:
        return 0.0 if record.cache else None
    return record.reload.bytes if record.reload else None


WHOLE_TRIAL = {
    metric.text: metric
    for metric in (
        _headroom("device", "device memory free", lambda seen: seen.device_bytes),
        _headroom("host", "host memory free", lambda seen: seen.host_bytes),
        _headroom("cgroup", "memory left to the cgroup", lambda seen: seen.cgroup_bytes),
        _headroom("device.double", "device memory free at twice the load", lambda seen: seen.device_double_bytes),
        _headroom("host.double", "host memory free at twice the load", lambda seen: seen.host_double_bytes),
        TrialMetric("errors", "errors", SHARE, False, _errors),
        TrialMetric("host_memory", "host pools", BYTES, False, _host_memory),
        TrialMetric("reload_bytes", "reloaded", BYTES, False, _reload_bytes),
        _cached("cached_ratio", "prompt cached", lambda counts: counts.cached_tokens),
        _cached("cached_ratio.device", "prompt cached on the device", lambda counts: counts.device_cached_tokens),
        _cached("cached_ratio.host", "prompt cached on the host", lambda counts: counts.host_cached_tokens),
        _cached("cached_ratio.storage", "prompt cached in storage", lambda counts: counts.storage_cached_tokens),
    )
}
