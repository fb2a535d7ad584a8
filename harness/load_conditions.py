"""What happened on the machine while a load ran: clocks, faults, swap, other work, and what watching cost.

A remark is made of what may have changed the figures of a trial. None of it makes a trial invalid. Of other work the
share of the machine is known but not whether the engine had to wait for it, and a trial that is repeated on a machine
that is always busy is as busy again; who reads the figures must know of it. What differs between trials of one
setting shows in the confirmation, which interleaves them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import pandas as pd
import psutil

from harness.telemetry import Telemetry
from scenarios.strict import StrictModel

NS_PER_S = 1e9
SLOWED_BY = {0x08: "hardware slowdown", 0x20: "heat (driver)", 0x40: "heat (hardware)", 0x80: "power brake"}
"""Bits of NVML's clocks event reasons that tell of a fault of the machine."""
POWER_CAPPED = 0x04
"""The power limit holds the clocks down: usual for a GPU that is busy."""
STEPS = (0.5, 0.25, 0.1)
"""Shares from which other work on the machine is remarked, the largest first."""
MUCH_STOLEN = 0.02
MUCH_SLOWED = 0.01
SLOW_SCRAPE_S = 0.2
MUCH_SCRAPING = 0.05


class Sign(enum.StrEnum):
    """What may have changed the figures of a load."""

    GPU_LOST = "gpu lost"
    CLOCKS_HELD_DOWN = "clocks held down"
    XID = "xid"
    MEMORY_FAILED = "device memory failed"
    MACHINE_BUSY = "machine busy"
    CORES_STOLEN = "cores stolen"
    SWAPPED = "swapped"
    SCRAPES_FAILED = "scrapes failed"
    SCRAPES_SLOW = "scrapes slow"


class DeviceConditions(StrictModel):
    """The GPUs under load. None means that they did not tell, or that there is none."""

    lost: str | None = None
    """Why a GPU did not answer, for a moment or for good."""
    slowed_share: float | None = None
    """Part of the readings in which heat or a fault of the power supply held the clocks down."""
    slowed_by: tuple[str, ...] = ()
    power_capped_share: float | None = None
    power_mean_w: float | None = None
    sm_clock_lowest_mhz: int | None = None
    xid: int | None = None
    """A critical error that the driver reported; 0 for none. Codes are those of NVIDIA's list of Xid errors."""
    uncorrected_errors: int | None = None
    """Uncorrected ECC errors that came under load."""
    remapped_rows: int | None = None
    """Rows of memory that were replaced under load."""
    engine_peak_bytes: int | None = None
    pcie_ceiling_bytes_per_s: float | None = None
    """What the links carry in one direction at their widest under load, all used GPUs together."""
    pcie_received_peak_bytes_per_s: float | None = None
    """The most that went from host to device, over half a second."""
    pcie_sent_peak_bytes_per_s: float | None = None


class HostConditions(StrictModel):
    """The host under load. None means that the kernel did not tell, or that the engine's processes are not known."""

    foreign_share: float | None = None
    """Part of the machine's cores that neither the engine nor the harness used, and yet were busy."""
    stolen_share: float | None = None
    """Part of the cores that the host of this virtual machine did not give."""
    engine_cores: float | None = None
    """Cores that the engine kept busy."""
    engine_major_faults: int | None = None
    engine_locked_peak_bytes: int | None = None
    engine_numa_bytes: dict[int, int] | None = None
    """The engine's memory by NUMA node at the end of the load; None on a machine of one node."""
    swapped_in_bytes: int | None = None
    swapped_out_bytes: int | None = None


class ScrapeConditions(StrictModel):
    """The scrapes of the engine's metrics, and what they took, from asking to parsed."""

    count: int
    failed: int
    mean_s: float | None = None
    longest_s: float | None = None
    share: float | None = None
    """Part of the load in which one was under way: of one core at most so much."""


class LoadConditions(StrictModel):
    """What telemetry saw of the machine under one load."""

    device: DeviceConditions
    host: HostConditions
    scrapes: ScrapeConditions

    @classmethod
    def of(cls, telemetry: Telemetry) -> LoadConditions:
        """Sum up the samples of one load."""
        samples = telemetry.samples
        seconds = float(samples["t_ns"].max() - samples["t_ns"].min()) / NS_PER_S if len(samples) else 0.0
        return cls(
            device=_device(samples, telemetry.headroom.device_reason),
            host=_host(samples, telemetry.numa_bytes),
            scrapes=_scrapes(samples, telemetry.scrapes, telemetry.failed_scrapes, seconds),
        )

    @property
    def remarks(self) -> Iterator[str]:
        """Yield what may have changed the figures, one sentence each, without a full stop."""
        yield from (sentence for _, sentence in self._signs())

    @property
    def signs(self) -> frozenset[Sign]:
        """What may have changed the figures, in words that do not vary."""
        return frozenset(sign for sign, _ in self._signs())

    def _signs(self) -> Iterator[tuple[Sign, str]]:
        yield from _of_device(self.device)
        yield from _of_host(self.host)
        yield from _of_scrapes(self.scrapes)


def _device(samples: pd.DataFrame, reason: str | None) -> DeviceConditions:
    events = samples["device_clock_events"].dropna().astype(int)
    slowed = [name for bit, name in SLOWED_BY.items() if (events & bit).any()]
    read_once = samples["device_used_bytes"].notna().any()
    return DeviceConditions(
        lost=reason if read_once else None,  # a machine without a GPU has lost none
        slowed_share=float((events & sum(SLOWED_BY) > 0).mean()) if len(events) else None,
        slowed_by=tuple(slowed),
        power_capped_share=float((events & POWER_CAPPED > 0).mean()) if len(events) else None,
        power_mean_w=_float(samples["device_power_w"].mean()),
        sm_clock_lowest_mhz=_int(samples["device_sm_clock_mhz"].min()),
        xid=_int(samples["device_xid"].max()),
        uncorrected_errors=_int(_growth(samples, "device_uncorrected_errors")),
        remapped_rows=_int(_growth(samples, "device_remapped_rows")),
        engine_peak_bytes=_int(samples["device_engine_bytes"].max()),
        pcie_ceiling_bytes_per_s=_float(samples["pcie_link_bytes_per_s"].max()),
        pcie_received_peak_bytes_per_s=_float(samples["pcie_received_bytes_per_s"].max()),
        pcie_sent_peak_bytes_per_s=_float(samples["pcie_sent_bytes_per_s"].max()),
    )


def _host(samples: pd.DataFrame, numa_bytes: dict[int, int] | None) -> HostConditions:
    rows = samples[samples["machine_busy_s"].notna()]
    seconds = float(rows["t_ns"].iloc[-1] - rows["t_ns"].iloc[0]) / NS_PER_S if len(rows) > 1 else 0.0
    capacity_s = seconds * (psutil.cpu_count() or 1)
    busy_s, engine_s = _growth(rows, "machine_busy_s"), _growth(rows, "engine_cpu_s")
    harness_s, stolen_s = _growth(rows, "harness_cpu_s"), _growth(rows, "machine_stolen_s")
    known = None not in (busy_s, engine_s, harness_s) and capacity_s > 0
    foreign_s = (busy_s or 0.0) - (engine_s or 0.0) - (harness_s or 0.0)
    return HostConditions(
        foreign_share=min(1.0, max(0.0, foreign_s / capacity_s)) if known else None,
        stolen_share=max(0.0, stolen_s / capacity_s) if stolen_s is not None and capacity_s else None,
        engine_cores=engine_s / seconds if engine_s is not None and seconds else None,
        engine_major_faults=_int(_growth(samples, "engine_major_faults")),
        engine_locked_peak_bytes=_int(samples["engine_locked_bytes"].max()),
        engine_numa_bytes=numa_bytes,
        swapped_in_bytes=_int(_growth(samples, "swapped_in_bytes")),
        swapped_out_bytes=_int(_growth(samples, "swapped_out_bytes")),
    )


def _scrapes(samples: pd.DataFrame, count: int, failed: int, seconds: float) -> ScrapeConditions:
    took_s = samples["scrape_s"].dropna()
    return ScrapeConditions(
        count=count,
        failed=failed,
        mean_s=_float(took_s.mean()),
        longest_s=_float(took_s.max()),
        share=float(took_s.sum()) / seconds if len(took_s) and seconds else None,
    )


def _of_device(device: DeviceConditions) -> Iterator[tuple[Sign, str]]:
    if device.lost is not None:
        yield Sign.GPU_LOST, f"a GPU did not answer under load ({device.lost}), so its headroom is unknown"
    if device.slowed_share is not None and device.slowed_share > MUCH_SLOWED:
        yield (
            Sign.CLOCKS_HELD_DOWN,
            f"the GPU's clocks were held down by {' and '.join(device.slowed_by)}: it is slower than it could be",
        )
    if device.xid:
        yield Sign.XID, f"the NVIDIA driver reported a critical error (Xid {device.xid}) under load"
    if device.uncorrected_errors or device.remapped_rows:
        yield (
            Sign.MEMORY_FAILED,
            "device memory failed under load (uncorrected ECC errors or replaced rows): have the GPU checked",
        )


def _of_host(host: HostConditions) -> Iterator[tuple[Sign, str]]:
    if host.foreign_share is not None and (step := next((s for s in STEPS if host.foreign_share > s), None)):
        yield Sign.MACHINE_BUSY, f"the machine was busy with other work, which took more than {step:.0%} of its cores"
    if host.stolen_share is not None and host.stolen_share > MUCH_STOLEN:
        yield (
            Sign.CORES_STOLEN,
            f"the host of this virtual machine kept more than {MUCH_STOLEN:.0%} of its cores to itself",
        )
    if host.swapped_in_bytes or host.swapped_out_bytes:
        yield Sign.SWAPPED, "the machine swapped under load"


def _of_scrapes(scrapes: ScrapeConditions) -> Iterator[tuple[Sign, str]]:
    if scrapes.failed:
        yield Sign.SCRAPES_FAILED, "some scrapes of the engine's metrics failed, so its queue is shown with gaps"
    if (scrapes.mean_s or 0.0) > SLOW_SCRAPE_S or (scrapes.share or 0.0) > MUCH_SCRAPING:
        yield (
            Sign.SCRAPES_SLOW,
            f"a scrape of the engine's metrics took more than {1000 * SLOW_SCRAPE_S:.0f} ms on average, or all of them "
            f"more than {MUCH_SCRAPING:.0%} of the load: watching the engine may have slowed it down",
        )


def _growth(samples: pd.DataFrame, column: str) -> float | None:
    """Return by how much a counter grew from its first reading to its last; None when it was not read twice."""
    known = samples[column].dropna()
    return float(known.iloc[-1] - known.iloc[0]) if len(known) > 1 else None


def _float(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _int(value: float | None) -> int | None:
    return None if value is None or pd.isna(value) else int(value)
