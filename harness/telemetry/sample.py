"""One row of samples.parquet, and how readings become one. docs/telemetry.md says what each column is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd

from harness.telemetry.host import HostMemory
from harness.telemetry.machine import MachineCpu
from harness.telemetry.readings import DeviceReading
from harness.telemetry.sources import EngineProcesses, Scrape


@dataclass(frozen=True, slots=True)
class Sample:
    """One row. Memory and scrapes have their own rows; None means not read in this row, or not told."""

    t_ns: int
    device_free_bytes: int | None = None
    device_used_bytes: int | None = None
    device_engine_bytes: int | None = None
    device_utilisation_percent: int | None = None
    device_power_w: float | None = None
    device_sm_clock_mhz: int | None = None
    device_memory_clock_mhz: int | None = None
    device_clock_events: int | None = None
    device_xid: int | None = None
    device_uncorrected_errors: int | None = None
    device_remapped_rows: int | None = None
    pcie_sent_bytes: int | None = None
    pcie_received_bytes: int | None = None
    pcie_sent_bytes_per_s: float | None = None
    pcie_received_bytes_per_s: float | None = None
    pcie_link_bytes_per_s: float | None = None
    host_available_bytes: int | None = None
    cgroup_headroom_bytes: int | None = None
    host_mlocked_bytes: int | None = None
    host_unevictable_bytes: int | None = None
    swap_used_bytes: int | None = None
    swapped_in_bytes: int | None = None
    swapped_out_bytes: int | None = None
    machine_busy_s: float | None = None
    machine_stolen_s: float | None = None
    harness_cpu_s: float | None = None
    engine_rss_bytes: int | None = None
    engine_locked_bytes: int | None = None
    engine_cpu_s: float | None = None
    engine_major_faults: int | None = None
    running_requests: float | None = None
    queued_requests: float | None = None
    token_usage: float | None = None
    host_used_tokens: int | None = None
    scrape_s: float | None = None


COLUMNS = {column.name: "Float64" if "float" in str(column.type) else "Int64" for column in fields(Sample)}
"""The type of each column of samples.parquet; all but the first may be unknown."""


def frame(samples: Sequence[Sample]) -> pd.DataFrame:
    """Put samples into a table by time."""
    table = pd.DataFrame([asdict(sample) for sample in samples], columns=list(COLUMNS))
    return table.astype(COLUMNS).sort_values("t_ns", kind="stable", ignore_index=True)


def of_device(device: DeviceReading, engine_pids: Collection[int]) -> dict[str, Any]:
    """Return the columns that the GPUs fill."""
    return {
        "device_free_bytes": device.free_bytes,
        "device_used_bytes": device.used_bytes,
        "device_engine_bytes": device.bytes_of(engine_pids),
        "device_utilisation_percent": device.utilisation_percent,
        "device_power_w": device.power_w,
        "device_sm_clock_mhz": device.sm_clock_mhz,
        "device_memory_clock_mhz": device.memory_clock_mhz,
        "device_clock_events": device.clock_events,
        "device_xid": None if device.xids is None else max(device.xids, default=0),
        "device_uncorrected_errors": device.uncorrected_errors,
        "device_remapped_rows": device.remapped_rows,
        "pcie_sent_bytes": device.pcie_sent_bytes,
        "pcie_received_bytes": device.pcie_received_bytes,
        "pcie_sent_bytes_per_s": device.pcie_sent_bytes_per_s,
        "pcie_received_bytes_per_s": device.pcie_received_bytes_per_s,
        "pcie_link_bytes_per_s": device.link_bytes_per_s,
    }


def of_host(host: HostMemory) -> dict[str, Any]:
    """Return the columns that the host's memory fills."""
    return {
        "host_available_bytes": host.available_bytes,
        "cgroup_headroom_bytes": host.cgroup.headroom_bytes if host.cgroup else None,
        "host_mlocked_bytes": host.mlocked_bytes,
        "host_unevictable_bytes": host.unevictable_bytes,
        "swap_used_bytes": host.swap_used_bytes,
        "swapped_in_bytes": host.swapped_in_bytes,
        "swapped_out_bytes": host.swapped_out_bytes,
    }


def of_machine(machine: MachineCpu) -> dict[str, Any]:
    """Return the columns that the machine's CPU counters fill."""
    return {
        "machine_busy_s": machine.busy_s,
        "machine_stolen_s": machine.stolen_s,
        "harness_cpu_s": machine.harness_cpu_s,
    }


def of_engine(engine: EngineProcesses) -> dict[str, Any]:
    """Return the columns that the engine's processes fill."""
    return {
        "engine_rss_bytes": engine.rss_bytes,
        "engine_locked_bytes": engine.locked_bytes,
        "engine_cpu_s": engine.cpu_s,
        "engine_major_faults": engine.major_faults,
    }


def of_scrape(scrape: Scrape) -> dict[str, Any]:
    """Return the columns that a scrape of the engine fills."""
    return {
        "running_requests": scrape.gauges.running_requests,
        "queued_requests": scrape.gauges.queued_requests,
        "token_usage": scrape.gauges.token_usage,
        "host_used_tokens": scrape.gauges.host_used_tokens,
        "scrape_s": scrape.scrape_s,
    }
