"""Whether a load process itself keeps up: its CPU, its event loop, its garbage collector, and when it sends."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence

from harness.load.job import ClientHealth


class HealthMonitor:
    """Watches this process between `start` and `report`."""

    def __init__(self) -> None:
        self._lags_ns: list[int] = []
        self._late_ns: list[int] = []
        self._wall_ns = 0
        self._cpu_ns = 0
        self._gc_began_ns = 0
        self._gc_pause_ns = 0

    def start(self) -> None:
        """Begin to watch."""
        gc.callbacks.append(self._on_gc)
        self._wall_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()

    def sleep(self, seconds: float) -> None:
        """Sleep as any user of the event loop does, and note how late it woke us."""
        due_ns = time.monotonic_ns() + round(seconds * 1e9)
        time.sleep(seconds)
        self._lags_ns.append(max(0, time.monotonic_ns() - due_ns))

    def sent(self, late_ns: int) -> None:
        """Note a request that was sent so much later than scheduled, though its user was idle when it was due."""
        self._late_ns.append(late_ns)

    def report(self) -> ClientHealth:
        """Stop watching and say what was seen."""
        gc.callbacks.remove(self._on_gc)
        wall_ns = max(1, time.monotonic_ns() - self._wall_ns)
        lag_p99_ms, lag_max_ms = _p99_and_max_ms(self._lags_ns or [0])
        late_p99_ms, late_max_ms = _p99_and_max_ms(self._late_ns) if self._late_ns else (None, None)
        return ClientHealth(
            cpu_fraction=(time.process_time_ns() - self._cpu_ns) / wall_ns,
            lag_p99_ms=lag_p99_ms,
            lag_max_ms=lag_max_ms,
            gc_pause_ms=self._gc_pause_ns / 1e6,
            late_p99_ms=late_p99_ms,
            late_max_ms=late_max_ms,
        )

    def _on_gc(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began_ns = time.monotonic_ns()
        else:
            self._gc_pause_ns += time.monotonic_ns() - self._gc_began_ns


def _p99_and_max_ms(values_ns: Sequence[int]) -> tuple[float, float]:
    ordered = sorted(values_ns)
    return ordered[(len(ordered) - 1) * 99 // 100] / 1e6, ordered[-1] / 1e6
