"""PCIe rates of a GPU's performance monitor, which compares two samples."""

from __future__ import annotations

import pytest

from harness.telemetry.pcie_meter import PcieMeter
from tests.support.fake_nvml import FakeGpu, FakeNvml

MIB = 2**20


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def test_rates_come_from_two_readings_in_bytes() -> None:
    """The first reading has none before it; the older sample is compared with the newer one, time and again."""
    gpu, clock = FakeGpu("GPU-a"), Clock()
    meter = PcieMeter(gpu, FakeNvml([gpu]), clock)
    assert meter.read() == (None, None)
    for rate in (100.0, 50.0, 75.0):
        clock.now_s += 0.5
        gpu.pcie_mib_per_s = (rate, 2 * rate)
        assert meter.read() == (rate * MIB, 2 * rate * MIB)


@pytest.mark.parametrize("passed_s", [0.05, 6.0])
def test_a_gap_that_is_no_part_of_a_load_gives_no_rate(passed_s: float) -> None:
    """Too short a gap is not what NVML can compare; over a long one lies a launch or a pause."""
    gpu, clock = FakeGpu("GPU-a"), Clock()
    meter = PcieMeter(gpu, FakeNvml([gpu]), clock)
    meter.read()
    clock.now_s += passed_s
    assert meter.read() == (None, None)
    clock.now_s += 0.5
    assert meter.read() == (100 * MIB, 200 * MIB)
