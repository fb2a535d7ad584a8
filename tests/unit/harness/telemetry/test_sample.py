"""The columns of samples.parquet: documented, and filled by readings that tell everything."""

from __future__ import annotations

import re
from pathlib import Path

from harness.telemetry import HostMemory, MetricsSnapshot, Nvml, Scrape, open_nvml
from harness.telemetry.host import CgroupMemory
from harness.telemetry.machine import MachineCpu
from harness.telemetry.metrics import EngineGauges
from harness.telemetry.readings import DeviceReading
from harness.telemetry.sample import COLUMNS, Sample, frame, of_device, of_engine, of_host, of_machine, of_scrape
from harness.telemetry.sources import EngineProcesses
from tests.support.fake_nvml import FakeGpu, FakeNvml

PAGE = Path(__file__).parents[4] / "docs/telemetry.md"


def test_every_column_is_documented_in_order() -> None:
    """The table of docs/telemetry.md names what the file holds, no more and no less."""
    table = PAGE.read_text(encoding="utf-8").partition("## Columns")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(COLUMNS)


def test_a_machine_that_tells_everything_leaves_no_column_empty() -> None:
    """Every column but the rates, which need two readings, is filled by one reading of each source."""
    nvml = open_nvml(module=FakeNvml([FakeGpu("GPU-a", processes={7: 5})], xids=[79]))
    assert isinstance(nvml, Nvml)
    device = nvml.read()
    assert isinstance(device, DeviceReading)
    host = HostMemory(9, 8, 7, 6, 5, CgroupMemory(4, 3), 2, 1)
    filled = (
        of_device(device, (7,))
        | of_host(host)
        | of_machine(MachineCpu.read())
        | of_engine(EngineProcesses(1, 2, 3.0, (7,), 4, 5))
        | of_scrape(Scrape(MetricsSnapshot(0), EngineGauges(1, 2, 3, 4, 5, 6, 7), 0.1))
    )
    assert {name for name, value in filled.items() if value is None} == {
        "pcie_sent_bytes_per_s", "pcie_received_bytes_per_s",
    }  # fmt: skip
    assert {"t_ns", *filled} == set(COLUMNS)
    row = frame([Sample(1, **filled)]).iloc[0]
    assert (row["device_engine_bytes"], row["device_xid"], row["host_mlocked_bytes"]) == (5, 79, 2)
