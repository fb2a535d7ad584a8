"""What a while of watching shows of an engine: its flags, its counters' growth, and its gauges over that time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.engine.client import EngineClient
from harness.errors import TelemetryError
from harness.telemetry import CacheDelta, EngineGauges, HostMemory, MetricsSnapshot, Ranks
from harness.telemetry.catalog import TOKEN_USAGE

POLL_S = 2.0
TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class Flags:
    """What the engine says of how it was launched; None where it does not."""

    hicache: bool
    write_policy: str | None
    io_backend: str | None
    mem_layout: str | None
    page_size: int | None
    device_pool_tokens: int | None
    mem_fraction_static: float | None
    ranks: Ranks

    @classmethod
    def of(cls, server_info: dict[str, Any]) -> Flags:
        """Read them from /server_info."""
        return cls(
            hicache=bool(server_info.get("enable_hierarchical_cache")),
            write_policy=server_info.get("hicache_write_policy"),
            io_backend=server_info.get("hicache_io_backend"),
            mem_layout=server_info.get("hicache_mem_layout"),
            page_size=server_info.get("page_size"),
            device_pool_tokens=server_info.get("max_total_num_tokens"),
            mem_fraction_static=server_info.get("mem_fraction_static"),
            ranks=Ranks(
                tp_size=server_info.get("tp_size") or 1,
                pp_size=server_info.get("pp_size") or 1,
                dp_size=server_info.get("dp_size") or 1,
                dp_attention=bool(server_info.get("enable_dp_attention")),
            ),
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """One look at the gauges."""

    t_ns: int
    gauges: EngineGauges
    usage_by_replica: tuple[float, ...]
    """Share of the KV pool in use of each data-parallel replica."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that the rules look at."""

    seconds: float
    flags: Flags
    delta: CacheDelta
    moments: tuple[Moment, ...]
    missed_scrapes: int
    swapped_bytes: int | None
    """Pages that went to swap and back on this host meanwhile; None when the engine runs on another one."""
    host_available_least_bytes: int | None
    """The least memory available on this host at any look; None when the engine runs on another one."""

    def series(self, pick: Callable[[EngineGauges], float | None]) -> list[float]:
        """List the values of one gauge that were seen."""
        return [value for moment in self.moments if (value := pick(moment.gauges)) is not None]


def watch(
    control: EngineClient,
    seconds: float,
    *,
    local: bool,
    say: Callable[[Moment], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Seen:
    """Watch for so long; `local` engines share this host's swap. Raises TelemetryError when nothing can be read."""
    flags = Flags.of(control.server_info())
    host = [HostMemory.read()] if local else []
    first = last = _scrape(control)
    moments, missed = [_moment(first)], 0
    started = time.monotonic()
    due = started + POLL_S
    while time.monotonic() < started + seconds and not should_stop():
        if time.monotonic() < due:
            time.sleep(TICK_S)
            continue
        due = time.monotonic() + POLL_S
        host += [HostMemory.read()] if local else []
        try:
            last = _scrape(control)
        except TelemetryError:
            missed += 1
            continue
        moments.append(_moment(last))
        say(moments[-1])
    if last is first:
        raise TelemetryError(f"{control.base_url}/metrics was read once only; watch for longer than {POLL_S:g} s")
    return Seen(
        seconds=(last.taken_ns - first.taken_ns) / 1e9,
        flags=flags,
        delta=CacheDelta.between(first, last, flags.ranks),
        moments=tuple(moments),
        missed_scrapes=missed,
        swapped_bytes=_swapped(host),
        host_available_least_bytes=min((memory.available_bytes for memory in host), default=None),
    )


def usage_by_replica(snapshot: MetricsSnapshot) -> tuple[float, ...]:
    """Return the KV pool usage of each data-parallel replica: of its fullest rank."""
    replicas: defaultdict[str, list[float]] = defaultdict(list)
    for sample in snapshot.named(TOKEN_USAGE.name):
        replicas[sample.labels.get("dp_rank", "")].append(sample.value)
    return tuple(max(values) for _, values in sorted(replicas.items()))


def thirds(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the means of the first and the last third; None when there are fewer than six values."""
    part = len(values) // 3
    if part < 2:
        return None
    return sum(values[:part]) / part, sum(values[-part:]) / part


def _swapped(host: Sequence[HostMemory]) -> int | None:
    swapped = [memory.swapped_bytes for memory in host]
    if not swapped or swapped[0] is None or swapped[-1] is None:
        return None
    return swapped[-1] - swapped[0]


def _scrape(control: EngineClient) -> MetricsSnapshot:
    return MetricsSnapshot.parse(control.metrics_text(), where=f"{control.base_url}/metrics")


def _moment(snapshot: MetricsSnapshot) -> Moment:
    return Moment(snapshot.taken_ns, EngineGauges.of(snapshot), usage_by_replica(snapshot))
