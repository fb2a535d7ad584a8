"""Queues in front of one server, simulated: loads that are steady, or that only get slower.

`python -m tests.support.queues` prints how many runs of each `harness.load.divergence` would stop, and when.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.load.divergence import Divergence
from harness.load.report import Answered, Waiting

S = 10**9
SERVICE_S = 0.06
THINK_S = 4.0
REPLY_S = 0.5
LEAST_S = 30.0


@dataclass(frozen=True)
class Load:
    """Requests of one run: when each was due, how long it waited for its first token, and which turn it was."""

    scheduled_s: Sequence[float]
    ttft_s: Sequence[float]
    turns: Sequence[int] | None = None

    @property
    def end_s(self) -> float:
        """When the last first token came."""
        return max(at + wait for at, wait in zip(self.scheduled_s, self.ttft_s, strict=True))

    def stopped_s(self, least_s: float = LEAST_S, until_s: float | None = None) -> float | None:
        """Look every second as a load does; say in which second it is stopped, or None when it is not."""
        divergence = Divergence(least_s)
        turns = self.turns or [1] * len(self.scheduled_s)
        requests = [
            Answered(turn, round(at * S), round(wait * S), "s")
            for turn, at, wait in zip(turns, self.scheduled_s, self.ttft_s, strict=True)
        ]
        for now_ns in range(0, round((until_s or self.end_s) * S) + S, S):
            before_ns = now_ns - S
            came = [r for r in requests if before_ns < r.scheduled_ns + r.ttft_ns <= now_ns]
            waiting = [r for r in requests if r.scheduled_ns <= now_ns < r.scheduled_ns + r.ttft_ns]
            divergence.add(came)
            if divergence.look(now_ns, [Waiting(r.turn, r.scheduled_ns) for r in waiting]):
                return now_ns / S
        return None


def closed(users: int, saturation: float, requests: int, seed: int, *, settle: int = 600) -> Load:
    """Let `users` ask, read and think, as a settled load does; at `saturation` 1.0 they just fill the server."""
    rng = np.random.default_rng(seed)
    service_s = THINK_S / (users / saturation - 1)
    next_ask = [(float(rng.exponential(THINK_S)), user) for user in range(users)]
    heapq.heapify(next_ask)
    free_s = 0.0
    found: list[tuple[float, float]] = []
    while len(found) < settle + requests:
        at_s, user = heapq.heappop(next_ask)
        free_s = max(at_s, free_s) + float(rng.exponential(service_s))
        found.append((at_s, free_s - at_s))
        heapq.heappush(next_ask, (free_s + REPLY_S + float(rng.exponential(THINK_S)), user))
    return _load(found[settle:])


def arrivals(load: float, requests: int, seed: int, *, settle: int = 0) -> Load:
    """Let requests come at random, at `load` times the rate that the server can take."""
    rng = np.random.default_rng(seed)
    at_s = free_s = 0.0
    found: list[tuple[float, float]] = []
    for _ in range(settle + requests):
        at_s += float(rng.exponential(SERVICE_S / load))
        free_s = max(at_s, free_s) + float(rng.exponential(SERVICE_S))
        found.append((at_s, free_s - at_s))
    return _load(found[settle:])


def _load(found: Sequence[tuple[float, float]]) -> Load:
    began_s = found[0][0]
    return Load([at - began_s for at, _ in found], [wait for _, wait in found])


def report(runs: int) -> Iterator[str]:
    """Yield one line for each kind of load."""
    for saturation in (0.9, 1.0, 1.1):
        yield _line(
            f"64 users at {saturation:.0%} of saturation", [closed(64, saturation, 600, n) for n in range(runs)]
        )
    for share in (0.8, 0.9):
        yield _line(f"arrivals at {share:.0%}", [arrivals(share, 2000, n, settle=600) for n in range(runs)])
    for share in (1.1, 1.2, 1.5, 2.0):
        yield _line(f"arrivals at {share:.0%}", [arrivals(share, 2000, n) for n in range(runs)])


def _line(name: str, loads: Sequence[Load]) -> str:
    stopped = [at for load in loads if (at := load.stopped_s()) is not None]
    lasts = np.median([load.end_s for load in loads])
    when = f", at {np.median(stopped):.0f} s (median)" if stopped else ""
    return f"{name}: {len(stopped) / len(loads):.1%} of {len(loads)} runs of {lasts:.0f} s are stopped{when}"


if __name__ == "__main__":
    for line in report(int(sys.argv[1]) if len(sys.argv) > 1 else 200):
        sys.stdout.write(line + "\n")
