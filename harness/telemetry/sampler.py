"""Watches memory, the engine's processes and gauges under load; the least that was free is the headroom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pandas as pd

from harness.errors import TelemetryError
from harness.telemetry.host import HostMemory
from harness.telemetry.nvml import DeviceReading
from harness.telemetry.sources import (
    EngineProcesses,
    HostSource,
    MetricsSource,
    ProcessSource,
    Scrape,
    Source,
    Unavailable,
)

DEFAULT_INTERVAL_S = 0.5
DEFAULT_SCRAPE_INTERVAL_S = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of samples.parquet. Memory and scrapes have their own rows; None means not read in this row."""

    t_ns: int
    device_free_bytes: int | None = None
    device_used_bytes: int | None = None
    device_utilisation_percent: int | None = None
    pcie_sent_bytes: int | None = None
    pcie_received_bytes: int | None = None
    host_available_bytes: int | None = None
    cgroup_headroom_bytes: int | None = None
    swap_used_bytes: int | None = None
    swapped_in_bytes: int | None = None
    swapped_out_bytes: int | None = None
    engine_rss_bytes: int | None = None
    engine_cpu_s: float | None = None
    running_requests: float | None = None
    queued_requests: float | None = None
    token_usage: float | None = None
    host_used_tokens: int | None = None
    scrape_s: float | None = None


@dataclass(frozen=True, slots=True)
class Headroom:
    """The least memory seen free, in bytes; None where it is unknown, with the reason."""

    device_bytes: int | None
    """On the fullest of the used GPUs."""
    host_bytes: int | None
    cgroup_bytes: int | None
    """Under the tightest cgroup limit; None when no limit is set."""
    device_reason: str | None = None
    host_reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """What the sampler saw. `samples` has the columns of `Sample`, by time, integers as nullable Int64."""

    samples: pd.DataFrame
    headroom: Headroom
    scrapes: int
    failed_scrapes: int
    last_scrape_error: str | None

    def write_samples(self, path: Path) -> None:
        """Write the samples as Parquet."""
        self.samples.to_parquet(path, index=False)


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that the sampler reads; an `Unavailable` stands for what this machine does not have."""

    device: Source[DeviceReading]
    host: Source[HostMemory]
    processes: Source[EngineProcesses]
    metrics: Source[Scrape]


class Sampler:
    """Reads the sources from two background threads while its `with` block runs.

    Memory is read at once, every `interval_s`, and once more at the end; the engine is scraped at once and
    every `scrape_interval_s`, in a thread of its own so that a slow engine does not hide a memory peak. The
    sources stay open.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        interval_s: float = DEFAULT_INTERVAL_S,
        scrape_interval_s: float = DEFAULT_SCRAPE_INTERVAL_S,
    ) -> None:
        self._sources = sources
        self._samples: list[Sample] = []
        self._scrapes = 0
        self._failed_scrapes = 0
        self._last_scrape_error: str | None = None
        self._device_reason: str | None = None
        self._host_reason: str | None = None
        self._tickers = (
            _Ticker("sample-memory", interval_s, self._sample_memory),
            _Ticker("scrape-engine", scrape_interval_s, self._scrape),
        )

    def __enter__(self) -> Self:
        for ticker in self._tickers:
            ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ticker in self._tickers:
            ticker.ask_to_end()
        for ticker in self._tickers:
            ticker.join()
        self._sample_memory()

    def result(self) -> Telemetry:
        """Return what was seen so far; raise TelemetryError when a thread ended before it was asked to."""
        if broken := [ticker.name for ticker in self._tickers if ticker.broke]:
            raise TelemetryError(
                f"{', '.join(broken)} broke under load, so headroom is unknown; report the traceback above"
            )
        samples = tuple(self._samples)
        return Telemetry(
            samples=_frame(samples),
            headroom=Headroom(
                device_bytes=None if self._device_reason else _least(s.device_free_bytes for s in samples),
                host_bytes=None if self._host_reason else _least(s.host_available_bytes for s in samples),
                cgroup_bytes=None if self._host_reason else _least(s.cgroup_headroom_bytes for s in samples),
                device_reason=self._device_reason,
                host_reason=self._host_reason,
            ),
            scrapes=self._scrapes,
            failed_scrapes=self._failed_scrapes,
            last_scrape_error=self._last_scrape_error,
        )

    def _sample_memory(self) -> None:
        sample = Sample(t_ns=time.monotonic_ns())
        device = self._sources.device.read()
        # One missing reading makes the least unknown: the peak may have been there.
        if isinstance(device, Unavailable):
            self._device_reason = str(device)
        else:
            sample = replace(
                sample,
                device_free_bytes=device.free_bytes,
                device_used_bytes=device.used_bytes,
                device_utilisation_percent=device.utilisation_percent,
                pcie_sent_bytes=device.pcie_sent_bytes,
                pcie_received_bytes=device.pcie_received_bytes,
            )
        host = self._sources.host.read()
        if isinstance(host, Unavailable):
            self._host_reason = str(host)
        else:
            sample = replace(
                sample,
                host_available_bytes=host.available_bytes,
                cgroup_headroom_bytes=host.cgroup.headroom_bytes if host.cgroup else None,
                swap_used_bytes=host.swap_used_bytes,
                swapped_in_bytes=host.swapped_in_bytes,
                swapped_out_bytes=host.swapped_out_bytes,
            )
        engine = self._sources.processes.read()
        if not isinstance(engine, Unavailable):
            sample = replace(sample, engine_rss_bytes=engine.rss_bytes, engine_cpu_s=engine.cpu_s)
        self._samples.append(sample)

    def _scrape(self) -> None:
        t_ns = time.monotonic_ns()
        scrape = self._sources.metrics.read()
        self._scrapes += 1
        if isinstance(scrape, Unavailable):
            self._failed_scrapes += 1
            self._last_scrape_error = str(scrape)
            return
        self._samples.append(
            Sample(
                t_ns=t_ns,
                running_requests=scrape.gauges.running_requests,
                queued_requests=scrape.gauges.queued_requests,
                token_usage=scrape.gauges.token_usage,
                host_used_tokens=scrape.gauges.host_used_tokens,
                scrape_s=scrape.scrape_s,
            )
        )


@contextmanager
def sampling(
    base_url: str,
    pids: Callable[[], Iterable[int]],
    device: Source[DeviceReading],
    *,
    interval_s: float = DEFAULT_INTERVAL_S,
    scrape_interval_s: float = DEFAULT_SCRAPE_INTERVAL_S,
) -> Iterator[Sampler]:
    """Sample the engine at `base_url`, whose processes `pids` names, for as long as the block runs.

    `device` comes from `open_nvml` and stays open, as it serves all trials of a study.
    """
    metrics = MetricsSource(base_url)
    sources = Sources(device, HostSource(), ProcessSource(pids), metrics)
    try:
        with Sampler(sources, interval_s=interval_s, scrape_interval_s=scrape_interval_s) as sampler:
            yield sampler
    finally:
        metrics.close()


class _Ticker(threading.Thread):
    """Calls `tick` at once and every `interval_s` until asked to end; late ticks are not made up."""

    def __init__(self, name: str, interval_s: float, tick: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._interval_s = interval_s
        self._tick = tick
        self._asked_to_end = threading.Event()
        self._ended_as_asked = False

    @property
    def broke(self) -> bool:
        """Say whether the thread ended by an error."""
        return self.ident is not None and not self.is_alive() and not self._ended_as_asked

    def ask_to_end(self) -> None:
        """Let the thread end after the tick in hand."""
        self._asked_to_end.set()

    def run(self) -> None:
        """Tick until asked to end."""
        due_s = time.monotonic()
        while True:
            self._tick()
            due_s = max(due_s + self._interval_s, time.monotonic())
            if self._asked_to_end.wait(due_s - time.monotonic()):
                self._ended_as_asked = True
                return


def _frame(samples: Sequence[Sample]) -> pd.DataFrame:
    columns = {f.name: "Float64" if "float" in str(f.type) else "Int64" for f in fields(Sample)}
    frame = pd.DataFrame([asdict(sample) for sample in samples], columns=list(columns))
    return frame.astype(columns).sort_values("t_ns", kind="stable", ignore_index=True)


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
