"""Each rule finds what it is for, and keeps silent on an engine that is well."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.diagnose.causes import Finding, Weight, diagnose
from harness.diagnose.seen import Seen
from tests.support.watched import POOL, delta, flags, gauges, moments, seen

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
