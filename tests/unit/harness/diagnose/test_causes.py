"""Each rule finds what it is for, and keeps silent on an engine that is well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from harness.diagnose.causes import Finding, Weight, diagnose
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
    }
    return Seen(**(well | changes))


LOST = {"evicted_tokens": 5 * POOL, "host_cached_tokens": 0, "hit_rate": 0.3}
THRASHING = {"evicted_tokens": 5 * POOL, "host_cached_tokens": 20_000, "hit_rate": 0.3}
GROWING = moments([gauges(queued=number) for number in range(30)])

CASES: dict[str, Seen] = {
    "restarted": seen(delta=delta(epoch_reset=True)),
    "over capacity": seen(moments=GROWING),
    "eviction stalls": seen(delta=delta(eviction_seconds=12.0)),
    "host pool too small": seen(delta=delta(**THRASHING), moments=moments([gauges(host_fill=1.0)] * 30)),
    "host tier never read": seen(delta=delta(**LOST)),
    "replicas uneven": seen(moments=moments([gauges()] * 30, (0.9, 0.3))),
    "swapping": seen(swapped_bytes=500 * 2**20),
    "reload storm": seen(delta=delta(host_cached_tokens=200_000)),
    "evicted and lost": seen(flags=flags(hicache=False), delta=delta(**LOST)),
    "host pool larger than it pays": seen(
        delta=delta(evicted_tokens=POOL), moments=moments([gauges(host_fill=0.2)] * 30)
    ),
    "low sharing": seen(delta=delta(hit_rate=0.02, host_cached_tokens=100)),
    "full and healthy": seen(moments=moments([gauges(usage=0.97)] * 30)),
    "host pool full and healthy": seen(
        delta=delta(host_cached_tokens=100_000), moments=moments([gauges(host_fill=1.0)] * 30)
    ),
    "too quiet": seen(delta=delta(requests=3)),
}


def names(found: Sequence[Finding]) -> list[str]:
    """List the names of findings."""
    return [finding.name for finding in found]


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_named_with_its_evidence_and_the_next_step(name: str) -> None:
    """The rule's own finding is there, and says what was seen and what to do."""
    found = {finding.name: finding for finding in diagnose(CASES[name])}
    assert name in found
    assert found[name].evidence
    assert found[name].next_step


def test_an_engine_that_is_well_has_no_finding() -> None:
    """Nothing is made up."""
    assert diagnose(seen()) == ()


def test_the_findings_of_one_state_are_few() -> None:
    """Each state is explained by its own cause alone, or with one more that follows from it."""
    assert max(len(diagnose(case)) for case in CASES.values()) <= 2


def test_faults_stand_before_advice() -> None:
    """What costs users time now is read first."""
    both = seen(swapped_bytes=2**20, delta=delta(host_cached_tokens=200_000))
    assert [finding.weight for finding in diagnose(both)] == [Weight.FAULT, Weight.ADVICE]


def test_another_hosts_swap_is_not_this_hosts() -> None:
    """An engine elsewhere is not said to swap."""
    assert "swapping" not in names(diagnose(seen(swapped_bytes=None)))


def test_counts_that_the_engine_does_not_tell_are_not_taken_for_zero() -> None:
    """An engine without HiCache counters is not said to copy for nothing."""
    silent = seen(delta=delta(evicted_tokens=5 * POOL, host_cached_tokens=None, hit_rate=None, eviction_seconds=None))
    assert "host tier never read" not in names(diagnose(silent))


def test_write_back_is_named_where_evictions_stall() -> None:
    """The evidence tells why an eviction takes long."""
    stalled = seen(flags=flags(write_policy="write_back"), delta=delta(eviction_seconds=12.0))
    assert "write_back copies to the host inside each eviction" in diagnose(stalled)[0].evidence
