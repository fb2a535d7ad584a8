"""What telemetry saw of the machine under a load, and what of it is remarked."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from harness.load_conditions import LoadConditions, Sign
from harness.telemetry import Headroom, Telemetry
from harness.telemetry.sample import Sample, frame

S = 10**9
LOAD_S = 100
CORES = psutil.cpu_count() or 1


def seen(*columns: dict[str, Any], scrapes: tuple[int, int] = (2, 0), reason: str | None = None) -> LoadConditions:
    """Sum up a load of 100 s whose rows are these, evenly spread."""
    step = LOAD_S * S // max(1, len(columns) - 1)
    samples = frame([Sample(number * step, **row) for number, row in enumerate(columns)])
    headroom = Headroom(None, None, None, device_reason=reason)
    return LoadConditions.of(Telemetry(samples, headroom, *scrapes, None, numa_bytes={0: 5, 1: 7}))


def cpu(machine_s: float, engine_s: float, harness_s: float, stolen_s: float = 0.0) -> LoadConditions:
    """Sum up a load in which so many CPU seconds passed."""
    start = {"machine_busy_s": 1000.0, "engine_cpu_s": 50.0, "harness_cpu_s": 20.0, "machine_stolen_s": 3.0}
    grown = (machine_s, engine_s, harness_s, stolen_s)
    return seen(start, {name: value + more for (name, value), more in zip(start.items(), grown, strict=True)})


def remarks(found: LoadConditions) -> list[str]:
    """List the remarks."""
    return list(found.remarks)


def test_other_work_is_what_neither_we_nor_the_engine_did() -> None:
    """A third of the cores: of what the machine did, engine and harness are taken off."""
    capacity_s = LOAD_S * CORES
    found = cpu(0.3 * capacity_s + 30, engine_s=25, harness_s=5)
    assert found.host.foreign_share == pytest.approx(0.3)
    assert found.host.engine_cores == pytest.approx(0.25)
    assert remarks(found) == ["the machine was busy with other work, which took more than 25% of its cores"]
    assert remarks(cpu(0.6 * capacity_s, 0, 0))[0].endswith("more than 50% of its cores")


def test_signs_are_the_remarks_in_words_that_do_not_vary() -> None:
    """Whatever figures and names stand in the sentences."""
    busy = cpu(0.3 * LOAD_S * CORES, 0, 0, stolen_s=0.1 * LOAD_S * CORES)
    assert busy.signs == {Sign.MACHINE_BUSY, Sign.CORES_STOLEN}
    swapping = seen(
        {"swapped_in_bytes": 0, "device_xid": 79}, {"swapped_in_bytes": 5, "device_xid": 79}, scrapes=(2, 1)
    )
    assert swapping.signs == {Sign.SWAPPED, Sign.XID, Sign.SCRAPES_FAILED}
    assert seen({}, {}).signs == frozenset()


def test_a_machine_of_our_own_needs_no_remark() -> None:
    """A little is always going on; counters that were read in another order never give less than nothing."""
    assert remarks(cpu(0.09 * LOAD_S * CORES, 0, 0)) == []
    assert cpu(10, engine_s=9, harness_s=2).host.foreign_share == 0.0


def test_other_work_is_unknown_where_the_engine_is() -> None:
    """An engine in a container or elsewhere would be taken for other work."""
    found = seen({"machine_busy_s": 1.0, "harness_cpu_s": 1.0}, {"machine_busy_s": 99.0, "harness_cpu_s": 1.0})
    assert (found.host.foreign_share, found.host.engine_cores) == (None, None)


def test_cores_that_the_host_kept_are_told() -> None:
    """Stolen time is no work of this machine, and yet the engine waited for it."""
    assert remarks(cpu(0, 0, 0, stolen_s=0.03 * LOAD_S * CORES)) == [
        "the host of this virtual machine kept more than 2% of its cores to itself"
    ]


def test_held_clocks_are_told_with_their_reason_and_a_power_limit_is_not() -> None:
    """Heat and power faults slow a GPU; its power limit is how it always runs."""
    found = seen(*({"device_clock_events": events} for events in (0x00, 0x04, 0x60, 0x04)))
    assert (found.device.slowed_share, found.device.power_capped_share) == (0.25, 0.5)
    assert remarks(found) == [
        "the GPU's clocks were held down by heat (driver) and heat (hardware): it is slower than it could be"
    ]
    assert remarks(seen({"device_clock_events": 0x05}, {"device_clock_events": 0x04})) == []


def test_faults_of_a_gpu_are_told() -> None:
    """A lost GPU, Xid errors and failing memory each have a sentence."""
    lost = seen({"device_used_bytes": 5}, {}, reason="a GPU has fallen off the bus (GpuIsLost); reset the GPU")
    assert remarks(lost) == [
        "a GPU did not answer under load (a GPU has fallen off the bus (GpuIsLost); reset the GPU), so its headroom is "
        "unknown"
    ]
    assert "Xid 79" in remarks(seen({"device_xid": 0}, {"device_xid": 79}, {"device_xid": 0}))[0]
    worse = seen({"device_uncorrected_errors": 3}, {"device_uncorrected_errors": 4})
    assert worse.device.uncorrected_errors == 1
    assert "have the GPU checked" in remarks(worse)[0]
    assert remarks(seen({"device_uncorrected_errors": 3}, {"device_uncorrected_errors": 3})) == []


def test_a_machine_without_a_gpu_has_lost_none() -> None:
    """Nothing is known of devices there, and nothing remarked."""
    found = seen({}, {}, reason="no NVIDIA driver library is installed")
    assert set(found.device.model_dump().values()) == {None, ()}
    assert remarks(found) == []


def test_what_memory_did_is_kept() -> None:
    """Growth of counters, peaks of levels; swapping is remarked."""
    found = seen(
        {"swapped_out_bytes": 10, "engine_major_faults": 5, "engine_locked_bytes": 1, "pcie_link_bytes_per_s": 8e9},
        {"swapped_out_bytes": 30, "engine_major_faults": 9, "engine_locked_bytes": 7, "pcie_link_bytes_per_s": 63e9},
    )
    assert (found.host.swapped_out_bytes, found.host.engine_major_faults) == (20, 4)
    assert (found.host.engine_locked_peak_bytes, found.host.engine_numa_bytes) == (7, {0: 5, 1: 7})
    assert found.device.pcie_ceiling_bytes_per_s == 63e9, "an idle link is slower than it can be"
    assert remarks(found) == ["the machine swapped under load"]


def test_scrapes_that_cost_or_fail_are_told() -> None:
    """Their mean and share of the load are kept."""
    found = seen({"scrape_s": 0.1}, {"scrape_s": 0.5}, scrapes=(3, 1))
    assert found.scrapes.mean_s == pytest.approx(0.3)
    assert found.scrapes.longest_s == 0.5
    assert found.scrapes.share == pytest.approx(0.006)
    gaps, slow = remarks(found)
    assert "some scrapes" in gaps
    assert "more than 200 ms on average" in slow
    assert remarks(seen({"scrape_s": 0.1}, {"scrape_s": 0.1})) == []


def test_a_load_without_samples_says_nothing() -> None:
    """A load that ended at once is no division by zero."""
    found = seen(scrapes=(0, 0))
    assert (found.host.foreign_share, found.scrapes.share, remarks(found)) == (None, None, [])
