"""The sampler: rows on one clock, the least that was free, and failures that are counted."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import pandas as pd
import pytest

from harness.errors import TelemetryError
from harness.telemetry import Headroom, HostMemory, MetricsSnapshot, Sampler, Scrape, Sources, Telemetry, Unavailable
from harness.telemetry.host import CgroupMemory
from harness.telemetry.metrics import EngineGauges
from harness.telemetry.readings import DeviceReading, GpuReading
from harness.telemetry.sample import Sample
from harness.telemetry.sampler import sampling
from harness.telemetry.sources import EngineProcesses

ReadingT = TypeVar("ReadingT")


class Script(Generic[ReadingT]):
    """A source that plays its readings, then repeats the last, and tells when all were read."""

    def __init__(self, *readings: ReadingT | Unavailable) -> None:
        self._readings: Iterator[ReadingT | Unavailable] = iter(readings)
        self._last = readings[-1]
        self.played = threading.Event()

    def read(self) -> ReadingT | Unavailable:
        """Return the next reading."""
        reading = next(self._readings, None)
        if reading is None:
            self.played.set()
            return self._last
        return reading

    def close(self) -> None:
        """Do nothing."""


def gpu(free_bytes: int) -> DeviceReading:
    """Build the reading of one GPU."""
    return DeviceReading((GpuReading("GPU-a", 100, free_bytes, 100 - free_bytes, 0, 40, 1, 2),))


def host(available_bytes: int, headroom_bytes: int | None = None) -> HostMemory:
    """Build a reading of the host; `headroom_bytes` is under a cgroup limit."""
    cgroup = None if headroom_bytes is None else CgroupMemory(headroom_bytes + 1, 1)
    return HostMemory(10**9, available_bytes, 0, None, None, cgroup)


def scrape(running: float = 2.0) -> Scrape:
    """Build a scrape."""
    gauges = EngineGauges(running, 1.0, 50.0, 0.5, 1000, 300, 3000)
    return Scrape(MetricsSnapshot(0), gauges, scrape_s=1e-5)


ENGINE = EngineProcesses(count=2, rss_bytes=5000, cpu_s=1.5)
SWITCHED_OFF = Unavailable("GPU metrics are off", "leave out --no-gpu-metrics")


def watched(
    *,
    device: Script[DeviceReading] | Unavailable = SWITCHED_OFF,
    memory: Script[HostMemory] | Unavailable | None = None,
    metrics: Script[Scrape] | Unavailable | None = None,
) -> Telemetry:
    """Sample until every script was played."""
    memory, metrics = memory or Script(host(500)), metrics or Script(scrape())
    sources = Sources(device, memory, Script(ENGINE), metrics)
    with Sampler(sources, interval_s=0.001, scrape_interval_s=0.001) as sampler:
        for source in (device, memory, metrics):
            if isinstance(source, Script):
                assert source.played.wait(timeout=30)
    return sampler.result()


def test_headroom_is_the_least_seen() -> None:
    """The dip in the middle counts, for the device, the host and the cgroup each."""
    telemetry = watched(
        device=Script(gpu(60), gpu(20), gpu(70)),
        memory=Script(host(900, 800), host(700, 750), host(950, 300), host(900, 800)),
    )
    assert telemetry.headroom == Headroom(device_bytes=20, host_bytes=300, cgroup_bytes=300)


def test_without_a_gpu_or_a_limit_headroom_says_why() -> None:
    """No GPU is not zero bytes, and no cgroup limit is None."""
    headroom = watched().headroom
    assert (headroom.device_bytes, headroom.host_bytes, headroom.cgroup_bytes) == (None, 500, None)
    assert headroom.device_reason == "GPU metrics are off; leave out --no-gpu-metrics"
    assert headroom.host_reason is None


def test_one_missing_reading_makes_the_headroom_unknown() -> None:
    """A GPU that was lost for a moment may have been full just then."""
    headroom = watched(
        device=Script(gpu(60), Unavailable("a GPU has fallen off the bus"), gpu(60)),
        memory=Script(host(900), Unavailable("no /proc"), host(900)),
    ).headroom
    assert (headroom.device_bytes, headroom.device_reason) == (None, "a GPU has fallen off the bus")
    assert (headroom.host_bytes, headroom.host_reason) == (None, "no /proc")


def test_failed_scrapes_are_counted_and_not_fatal() -> None:
    """The rows of the good scrapes stay, and the last failure is told."""
    telemetry = watched(metrics=Script(scrape(1), Unavailable("refused"), Unavailable("timed out"), scrape(4)))
    assert telemetry.failed_scrapes == 2
    assert telemetry.last_scrape_error == "timed out"
    running = telemetry.samples["running_requests"].dropna().tolist()
    assert running[:2] == [1, 4]
    assert telemetry.scrapes == telemetry.failed_scrapes + len(running)


def test_samples_are_rows_on_one_clock(tmp_path: Path) -> None:
    """Columns are those of Sample, integers are nullable, rows are in order, and Parquet keeps all of it."""
    telemetry = watched(device=Script(gpu(60)))
    frame = telemetry.samples
    assert list(frame.columns) == list(Sample.__dataclass_fields__)
    assert {str(kind) for kind in frame.dtypes} == {"Int64", "Float64"}
    assert frame["t_ns"].is_monotonic_increasing
    memory_rows = frame[frame["host_available_bytes"].notna()]
    assert set(memory_rows["engine_rss_bytes"]) == {5000}
    assert set(memory_rows["device_used_bytes"]) == {40}
    assert memory_rows["scrape_s"].isna().all()
    scrapes = frame[frame["scrape_s"].notna()]
    assert set(scrapes["host_used_tokens"]) == {300}
    telemetry.write_samples(tmp_path / "samples.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "samples.parquet"), frame)


def test_a_load_shorter_than_the_interval_is_still_sampled() -> None:
    """Memory is read at the start and at the end whatever the interval."""
    memory = Script(host(500), host(400))
    sources = Sources(SWITCHED_OFF, memory, Script(ENGINE), Script(scrape()))
    first_read = threading.Event()

    def pids() -> EngineProcesses:
        first_read.set()
        return ENGINE

    sources = Sources(SWITCHED_OFF, memory, _Calls(pids), Script(scrape()))
    with Sampler(sources, interval_s=3600, scrape_interval_s=3600) as sampler:
        assert first_read.wait(timeout=30)
    assert sampler.result().headroom.host_bytes == 400


class _Calls(Generic[ReadingT]):
    """A source that calls a function."""

    def __init__(self, function: Callable[[], ReadingT]) -> None:
        self._function = function

    def read(self) -> ReadingT | Unavailable:
        """Call it."""
        return self._function()

    def close(self) -> None:
        """Do nothing."""


def test_nothing_keeps_running_after_the_block() -> None:
    """Both threads have ended when the block has, also when it ends by an error."""
    sources = Sources(SWITCHED_OFF, Script(host(1)), Script(ENGINE), Script(scrape()))
    with pytest.raises(KeyboardInterrupt), Sampler(sources):
        raise KeyboardInterrupt
    assert not {thread.name for thread in threading.enumerate()} & {"sample-memory", "scrape-engine"}


def test_a_sampler_that_broke_does_not_claim_headroom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that breaks its promise ends the thread; the result says so."""
    broken = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: broken.set())
    calls = iter([host(5)])

    def memory() -> HostMemory:
        return next(calls)  # the second call raises, which no source may do

    sources = Sources(SWITCHED_OFF, _Calls(memory), Script(ENGINE), Script(scrape()))
    sampler = Sampler(sources, interval_s=0.001)
    with pytest.raises(StopIteration), sampler:
        assert broken.wait(timeout=30)
    with pytest.raises(TelemetryError, match="sample-memory broke under load"):
        sampler.result()


def test_sampling_an_engine_reads_this_host_and_its_processes() -> None:
    """The short way builds the real sources; an engine that is not there is a failed scrape."""
    with sampling("http://127.0.0.1:9", lambda: [os.getpid()], SWITCHED_OFF) as sampler:
        pass
    telemetry = sampler.result()
    assert telemetry.headroom.host_bytes is not None
    assert telemetry.samples["engine_rss_bytes"].min() > 0
    assert telemetry.failed_scrapes == telemetry.scrapes
    assert "127.0.0.1:9/metrics cannot be read" in str(telemetry.last_scrape_error)


def test_scrapes_that_take_long_are_made_rarer() -> None:
    """At most a fiftieth of the time goes into them: after one of 20 ms the next is a second away."""
    slow = Scrape(MetricsSnapshot(0), EngineGauges(1, 0, 0, 0, 0, 0, 0), scrape_s=0.02)
    scrapes = Script(slow)
    memory = Script(*[host(500)] * 50)
    with Sampler(
        Sources(SWITCHED_OFF, memory, Script(ENGINE), scrapes), interval_s=0.001, scrape_interval_s=0.001
    ) as s:
        assert memory.played.wait(timeout=30)
    assert s.result().scrapes == 1


def test_device_memory_of_the_engine_is_told_from_that_of_others() -> None:
    """The processes that the engine has at that moment are looked for among those of the GPU."""
    reading = GpuReading("GPU-a", 100, 60, 40, 0, 40, 1, 2, process_bytes={7: 25, 99: 15})
    sources = Sources(
        Script(DeviceReading((reading,), xids=(31, 79))), Script(host(5)), _Calls(lambda: replace(ENGINE, pids=(7, 8))),
        Script(scrape()),
    )  # fmt: skip
    with Sampler(sources, interval_s=0.001) as sampler:
        pass
    row = sampler.result().samples.dropna(subset=["device_used_bytes"]).iloc[0]
    assert (row["device_engine_bytes"], row["device_xid"]) == (25, 79)


def test_headroom_at_double_comes_with_headroom() -> None:
    """A load with a ramp has a guess for device and host; one without has none."""
    assert (watched().headroom.host_double_bytes, watched().headroom.device_double_bytes) == (None, None)
