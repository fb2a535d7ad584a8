"""What the used GPUs say at one moment. None where a GPU does not tell, never zero."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

LANE_BYTES_PER_S = {1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1969.2e6, 5: 3938.5e6, 6: 7562.5e6}
"""What one PCIe lane carries in one direction after its line code, by generation; packet headers take some of it."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU, or one instance of a split one, at one moment."""

    uuid: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    reserved_bytes: int
    """Kept by the driver; neither free nor used."""
    utilisation_percent: int | None
    pcie_sent_bytes: int | None
    """By the GPU since the driver was loaded. On an H200 it wraps at 2**32, within half a second of a fast copy."""
    pcie_received_bytes: int | None
    pcie_sent_bytes_per_s: float | None = None
    """Since the reading before; Hopper and later."""
    pcie_received_bytes_per_s: float | None = None
    pcie_generation: int | None = None
    """Of the link as it is now; an idle GPU lowers it."""
    pcie_width: int | None = None
    process_bytes: Mapping[int, int] | None = None
    """Memory of each process that computes on it, by process id."""
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_events: int | None = None
    """Why the clocks are lower than they could be: bits of NVML's clocks event reasons."""
    uncorrected_errors: int | None = None
    """ECC errors of memory that could not be corrected, since the driver was loaded."""
    remapped_rows: int | None = None
    """Rows of memory that were replaced because they failed."""

    @property
    def link_bytes_per_s(self) -> float | None:
        """What the link carries in one direction at most, as it is now."""
        if self.pcie_width is None or self.pcie_generation not in LANE_BYTES_PER_S:
            return None
        return LANE_BYTES_PER_S[self.pcie_generation] * self.pcie_width


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """The used GPUs at one moment; there is at least one."""

    gpus: tuple[GpuReading, ...]
    xids: tuple[int, ...] | None = None
    """Critical errors that the driver reported since the reading before; None when it may not be asked."""

    @property
    def free_bytes(self) -> int:
        """Free memory of the fullest GPU, the one that runs out first."""
        return min(gpu.free_bytes for gpu in self.gpus)

    @property
    def used_bytes(self) -> int:
        """Used memory of the fullest GPU."""
        return max(gpu.used_bytes for gpu in self.gpus)

    @property
    def utilisation_percent(self) -> int | None:
        """Utilisation of the busiest GPU; None when none tells."""
        return _most(gpu.utilisation_percent for gpu in self.gpus)

    @property
    def pcie_sent_bytes(self) -> int | None:
        """Sent by all used GPUs; None when one of them does not tell."""
        return _sum_of(gpu.pcie_sent_bytes for gpu in self.gpus)

    @property
    def pcie_received_bytes(self) -> int | None:
        """Received by all used GPUs; None when one of them does not tell."""
        return _sum_of(gpu.pcie_received_bytes for gpu in self.gpus)

    @property
    def pcie_sent_bytes_per_s(self) -> float | None:
        """Sent by all used GPUs since the reading before."""
        return _sum_of_floats(gpu.pcie_sent_bytes_per_s for gpu in self.gpus)

    @property
    def pcie_received_bytes_per_s(self) -> float | None:
        """Received by all used GPUs since the reading before."""
        return _sum_of_floats(gpu.pcie_received_bytes_per_s for gpu in self.gpus)

    @property
    def link_bytes_per_s(self) -> float | None:
        """What the links of all used GPUs carry in one direction at most."""
        return _sum_of_floats(gpu.link_bytes_per_s for gpu in self.gpus)

    @property
    def power_w(self) -> float | None:
        """Power of all used GPUs."""
        return _sum_of_floats(gpu.power_w for gpu in self.gpus)

    @property
    def sm_clock_mhz(self) -> int | None:
        """Clock of the slowest GPU: the ranks wait for it."""
        return _least(gpu.sm_clock_mhz for gpu in self.gpus)

    @property
    def memory_clock_mhz(self) -> int | None:
        """Memory clock of the slowest GPU."""
        return _least(gpu.memory_clock_mhz for gpu in self.gpus)

    @property
    def clock_events(self) -> int | None:
        """Clock events of all used GPUs together; None when none tells."""
        known = [gpu.clock_events for gpu in self.gpus if gpu.clock_events is not None]
        together = 0
        for events in known:
            together |= events
        return together if known else None

    @property
    def uncorrected_errors(self) -> int | None:
        """Uncorrected ECC errors of all used GPUs."""
        return _sum_of(gpu.uncorrected_errors for gpu in self.gpus)

    @property
    def remapped_rows(self) -> int | None:
        """Remapped rows of all used GPUs."""
        return _sum_of(gpu.remapped_rows for gpu in self.gpus)

    def bytes_of(self, pids: Collection[int]) -> int | None:
        """Return the memory of these processes on the GPU where they have most of it.

        None when no GPU names any of them: the driver hides it, or numbers processes as the host does and we run in a
        container.
        """
        shares = [
            sum(own)
            for gpu in self.gpus
            if gpu.process_bytes and (own := [gpu.process_bytes[pid] for pid in pids if pid in gpu.process_bytes])
        ]
        return max(shares, default=None)


def _sum_of(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _sum_of_floats(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
