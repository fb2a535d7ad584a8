"""Device memory on a real GPU; skips itself where there is none."""

from __future__ import annotations

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
