"""Watches memory, the engine's processes and gauges under load; the least that was free is the headroom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd

from harness.errors import TelemetryError
from harness.telemetry import sample
from harness.telemetry.growth import at_double
from harness.telemetry.host import HostMemory
from harness.telemetry.machine import MachineCpu
from harness.telemetry.processes import numa_bytes
from harness.telemetry.readings import DeviceReading
from harness.telemetry.sample import Sample
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
SCRAPE_SHARE = 0.02
"""Of the time at most that scrapes take, from asking to parsed: slow ones are made rarer."""
LONGEST_PAUSE_S = 10.0


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
    device_double_bytes: int | None = None
    """Predicted at twice the most requests that ran at once (see `harness.telemetry.growth`); below zero: no room."""
    host_double_bytes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """What the sampler saw. `samples` has the columns of `Sample`, by time, integers as nullable Int64."""

    samples: pd.DataFrame
    headroom: Headroom
    scrapes: int
    failed_scrapes: int
    last_scrape_error: str | None
    numa_bytes: dict[int, int] | None = None
    """Memory of the engine by NUMA node, at the end of the load; None on a machine of one node."""

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
        self._numa_bytes: dict[int, int] | None = None
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
        engine = self._sources.processes.read()
        self._numa_bytes = None if isinstance(engine, Unavailable) else numa_bytes(engine.pids)

    def result(self) -> Telemetry:
        """Return what was seen so far; raise TelemetryError when a thread ended before it was asked to."""
        if broken := [ticker.name for ticker in self._tickers if ticker.broke]:
            raise TelemetryError(
                f"{', '.join(broken)} broke under load, so headroom is unknown; report the traceback above"
            )
        samples = tuple(self._samples)
        table = sample.frame(samples)
        device = None if self._device_reason else _least(s.device_free_bytes for s in samples)
        host = None if self._host_reason else _least(s.host_available_bytes for s in samples)
        return Telemetry(
            samples=table,
            headroom=Headroom(
                device_bytes=device,
                host_bytes=host,
                cgroup_bytes=None if self._host_reason else _least(s.cgroup_headroom_bytes for s in samples),
                device_reason=self._device_reason,
                host_reason=self._host_reason,
                device_double_bytes=at_double(table, "device_used_bytes", device),
                host_double_bytes=at_double(table, "engine_rss_bytes", host),
            ),
            scrapes=self._scrapes,
            failed_scrapes=self._failed_scrapes,
            last_scrape_error=self._last_scrape_error,
            numa_bytes=self._numa_bytes,
        )

    def _sample_memory(self) -> float:
        t_ns = time.monotonic_ns()
        seen: dict[str, Any] = {}
        engine = self._sources.processes.read()
        pids = () if isinstance(engine, Unavailable) else engine.pids
        device = self._sources.device.read()
        # One missing reading makes the least unknown: the peak may have been there.
        if isinstance(device, Unavailable):
            self._device_reason = str(device)
        else:
            seen |= sample.of_device(device, pids)
        host = self._sources.host.read()
        if isinstance(host, Unavailable):
            self._host_reason = str(host)
        else:
            seen |= sample.of_host(host)
        # Read one after the other, so that what the engine did in between is small against the load.
        if not isinstance(engine, Unavailable):
            seen |= sample.of_engine(engine)
        seen |= sample.of_machine(MachineCpu.read())
        self._samples.append(Sample(t_ns, **seen))
        return 0.0

    def _scrape(self) -> float:
        t_ns = time.monotonic_ns()
        scrape = self._sources.metrics.read()
        self._scrapes += 1
        if isinstance(scrape, Unavailable):
            self._failed_scrapes += 1
            self._last_scrape_error = str(scrape)
            return 0.0
        self._samples.append(Sample(t_ns, **sample.of_scrape(scrape)))
        return min(LONGEST_PAUSE_S, scrape.scrape_s / SCRAPE_SHARE)


@contextmanager
def sampling(
    base_url: str,
    pids: Callable[[], Iterable[int]],
    device: Source[DeviceReading],
    *,
    host: Source[HostMemory] | None = None,
    interval_s: float = DEFAULT_INTERVAL_S,
    scrape_interval_s: float = DEFAULT_SCRAPE_INTERVAL_S,
) -> Iterator[Sampler]:
    """Sample the engine at `base_url`, whose processes `pids` names, for as long as the block runs.

    `device` comes from `open_nvml` and stays open, as it serves all trials of a study; `host` is this machine's memory
    unless the engine is on another one.
    """
    metrics = MetricsSource(base_url)
    sources = Sources(device, host or HostSource(), ProcessSource(pids), metrics)
    try:
        with Sampler(sources, interval_s=interval_s, scrape_interval_s=scrape_interval_s) as sampler:
            yield sampler
    finally:
        metrics.close()


class _Ticker(threading.Thread):
    """Calls `tick` at once and every `interval_s` until asked to end; late ticks are not made up.

    `tick` returns the least pause that it wants before the next, in seconds.
    """

    def __init__(self, name: str, interval_s: float, tick: Callable[[], float]) -> None:
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
            pause_s = self._tick()
            due_s = max(due_s + self._interval_s, time.monotonic() + pause_s)
            if self._asked_to_end.wait(due_s - time.monotonic()):
                self._ended_as_asked = True
                return


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
