"""Device memory on a real GPU; skips itself where there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from harness.telemetry import Nvml, Unavailable, open_nvml

pytestmark = pytest.mark.gpu


@pytest.fixture
def nvml() -> Iterator[Nvml]:
    """Open NVML, or skip with its own reason."""
    found = open_nvml()
    if isinstance(found, Unavailable):
        pytest.skip(str(found))
    yield found
    found.close()


def test_memory_adds_up(nvml: Nvml) -> None:
    """Free and used memory of a real device are positive and not larger than a real device is."""
    reading = nvml.read()
    assert not isinstance(reading, Unavailable)
    assert reading.free_bytes > 0
    assert reading.used_bytes >= 0
    assert 2**30 < reading.free_bytes + reading.used_bytes < 2**40


def test_a_real_gpu_tells_its_load_and_its_link(nvml: Nvml) -> None:
    """Power, clocks and link of a real device are in the range of real devices; what it refuses is None."""
    reading = nvml.read()
    assert not isinstance(reading, Unavailable)
    if reading.power_w is not None:
        assert 1 < reading.power_w < 2000 * len(reading.gpus)
    if reading.sm_clock_mhz is not None:
        assert 100 < reading.sm_clock_mhz < 5000
    if reading.link_bytes_per_s is not None:
        assert 1e8 < reading.link_bytes_per_s < 1e12 * len(reading.gpus)
    assert reading.uncorrected_errors is None or reading.uncorrected_errors >= 0


def test_pcie_rates_of_a_real_gpu_come_with_the_second_reading(nvml: Nvml) -> None:
    """On Hopper and later two readings give a rate, which is no more than a link carries; earlier GPUs give none."""
    nvml.read()
    time.sleep(0.3)
    reading = nvml.read()
    assert not isinstance(reading, Unavailable)
    if reading.pcie_received_bytes_per_s is not None:
        assert 0 <= reading.pcie_received_bytes_per_s < 1e12
