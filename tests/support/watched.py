"""What `diagnose` sees of an engine that is well, and any change of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from harness.diagnose.seen import Flags, Moment, Seen
from harness.telemetry import CacheDelta, EngineGauges, Ranks

POOL = 100_000


def flags(**changes: Any) -> Flags:
    """Describe an engine with HiCache."""
    well = Flags(True, "write_through", "kernel", "page_first", 64, POOL, 0.85, Ranks())
    return replace(well, **changes)


def delta(**changes: Any) -> CacheDelta:
    """Count a healthy minute: half of the prompt tokens from the device, a little from the host."""
    unknown: dict[str, Any] = {field.name: None for field in fields(CacheDelta)}
    well = unknown | {
        "start_ns": 0,
        "end_ns": 60 * 10**9,
        "sglang_metrics_version": "0.5.15",
        "epoch_reset": False,
        "requests": 300,
        "retracted": 0,
        "prompt_tokens": 400_000,
        "cached_tokens": 240_000,
        "device_cached_tokens": 200_000,
        "host_cached_tokens": 40_000,
        "hit_rate": 0.6,
        "evicted_tokens": 30_000,
        "eviction_count": 50,
        "eviction_seconds": 0.1,
        "load_back_tokens": 40_000,
        "load_back_seconds_is_bookkeeping": True,
        "at_end": gauges(),
        "absent": (),
    }
    return CacheDelta(**(well | changes))


def gauges(*, queued: float = 0, usage: float = 0.5, host_fill: float = 0.8) -> EngineGauges:
    """Read the gauges once."""
    return EngineGauges(8, queued, 500.0, usage, POOL, round(host_fill * 2 * POOL), 2 * POOL)


def moments(series: Sequence[EngineGauges], replicas: Sequence[float] = (0.5,)) -> tuple[Moment, ...]:
    """Make one look each two seconds."""
    return tuple(Moment(i * 2 * 10**9, each, tuple(replicas)) for i, each in enumerate(series))


def seen(**changes: Any) -> Seen:
    """Describe a minute of an engine that is well."""
    well: dict[str, Any] = {
        "seconds": 60.0,
        "flags": flags(),
        "delta": delta(),
        "moments": moments([gauges()] * 30),
        "missed_scrapes": 0,
        "swapped_bytes": 0,
        "host_available_least_bytes": 40 * 2**30,
    }
    return Seen(**(well | changes))
