"""Where telemetry comes from: small objects with one `read()`, which answers or says why it cannot.

A source that cannot answer returns `Unavailable`, never zeros and never an exception, so that a search goes
on without the figure and its reader sees that it is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar

import httpx
import psutil

from harness.errors import TelemetryError
from harness.telemetry.host import HostMemory
from harness.telemetry.metrics import EngineGauges, MetricsSnapshot
from harness.telemetry.processes import locked_bytes, major_faults

ReadingT_co = TypeVar("ReadingT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why a source has no answer and what to do about it; a source in itself, which always answers so."""

    reason: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.advice}" if self.advice else self.reason

    def read(self) -> Self:
        """Return itself."""
        return self

    def close(self) -> None:
        """Do nothing."""


class Source(Protocol[ReadingT_co]):
    """Something that can be read again and again until it is closed."""

    def read(self) -> ReadingT_co | Unavailable:
        """Return a reading, or why there is none; never raise for what the outside world does."""

    def close(self) -> None:
        """Give back what the source holds; safe to call twice."""


class HostSource:
    """Reads the host's memory and the limits of this process's control group."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self) -> HostMemory | Unavailable:
        """Read /proc and /sys/fs/cgroup."""
        try:
            return HostMemory.read(self._root)
        except TelemetryError as problem:
            return Unavailable(str(problem))

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class EngineProcesses:
    """The engine's processes together."""

    count: int
    rss_bytes: int
    """Resident memory added over processes; pages that they share count once for each."""
    cpu_s: float
    """User and system seconds since they started; drops when one of them ends."""
    pids: tuple[int, ...] = ()
    major_faults: int | None = None
    """Pages that had to be read from a disk since they started: memory that was swapped out, or a mapped file."""
    locked_bytes: int | None = None
    """Locked by `mlock` or pinned for a device, as far as the kernel counts it for a process."""


class ProcessSource:
    """Reads the processes that `pids` names at that moment, say those of the engine's process group."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids

    def read(self) -> EngineProcesses | Unavailable:
        """Add up the processes that still run."""
        readings: list[tuple[int, int, float]] = []
        try:
            for pid in self._pids():
                try:
                    process = psutil.Process(pid)
                    times = process.cpu_times()
                    readings.append((pid, process.memory_info().rss, times.user + times.system))
                except psutil.NoSuchProcess:
                    continue
        except psutil.AccessDenied as problem:
            return Unavailable(f"process {problem.pid} of the engine may not be read", "run as the engine's user")
        if not readings:
            return Unavailable("no process of the engine runs")
        pids = tuple(pid for pid, _, _ in readings)
        return EngineProcesses(
            count=len(readings),
            rss_bytes=sum(rss for _, rss, _ in readings),
            cpu_s=sum(cpu for _, _, cpu in readings),
            pids=pids,
            major_faults=major_faults(pids),
            locked_bytes=locked_bytes(pids),
        )

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape of the engine and what it took."""

    snapshot: MetricsSnapshot
    gauges: EngineGauges
    scrape_s: float
    """From asking to parsed."""


class MetricsSource:
    """Scrapes `/metrics` of the engine at `base_url`."""

    def __init__(self, base_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = f"{base_url.rstrip('/')}/metrics"
        # The engine drops idle connections after about 5 s, which a kept-alive one learns too late. A proxy
        # of the environment must not stand between the harness and a server on loopback.
        self._client = httpx.Client(
            timeout=timeout_s, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False
        )

    def scrape(self) -> Scrape:
        """Scrape once; raise TelemetryError when the engine does not answer with metrics."""
        taken_ns = time.monotonic_ns()
        try:
            response = self._client.get(self._url).raise_for_status()
        except httpx.HTTPStatusError as problem:
            raise TelemetryError(
                f"{self._url} answers {problem.response.status_code}; launch the engine with --enable-metrics"
            ) from None
        except httpx.HTTPError as problem:
            raise TelemetryError(
                f"{self._url} cannot be read ({problem or type(problem).__name__}); is the engine running?"
            ) from None
        snapshot = MetricsSnapshot.parse(response.text, taken_ns=taken_ns, where=self._url)
        return Scrape(snapshot, EngineGauges.of(snapshot), (time.monotonic_ns() - taken_ns) / 1e9)

    def read(self) -> Scrape | Unavailable:
        """Scrape once; a failure is an answer."""
        try:
            return self.scrape()
        except TelemetryError as problem:
            return Unavailable(str(problem))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
