"""One step of the ladder: one client against a server of its own, and how far its times are from the truth."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.bench.load.server import Report, Script, Truth

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 90.0
"""A client that needs longer for one load has failed it."""
SETTLE_S = 0.3
"""The counted window begins this long after every slot has its first token."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a client: a closed load of `streams` slots, each with `rounds` requests one after another."""

    streams: int
    tokens: int
    """Of each reply; the server sends each in an event of its own."""
    tokens_per_s: float
    """Offered by the server when the client keeps up."""
    seconds: float
    """How long to measure, about."""

    @property
    def script(self) -> Script:
        """The server's script that offers this load."""
        whole_s = self.streams * self.tokens / self.tokens_per_s
        gap_s = max(0.0, (whole_s - sum(Script.first_token_s) / 2) / (self.tokens - 1))
        return Script(gap_s=gap_s, spread=self.streams, spread_s=whole_s)

    @property
    def requests(self) -> int:
        """How many: a first one in each slot that isn't counted, then about `seconds` of them, two at least."""
        rounds = max(2, round(self.seconds * self.tokens_per_s / (self.streams * self.tokens)))
        return self.streams * (1 + rounds)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that a client calls a success, in ns of CLOCK_MONOTONIC."""

    key: int
    sent_ns: int
    first_token_ns: int
    chunks: int
    """Non-empty deltas."""


Client = Callable[[str, Load, Path, Sequence[int]], list[Seen]]
"""Plays a load against a base URL, with a folder for its files, on the cores named; returns what it saw."""


@dataclass(frozen=True, slots=True)
class Rung:
    """What came of one load."""

    client: str
    load: Load
    tokens_per_s: float
    """Reached while all slots were busy."""
    counted: int
    """Requests in the counted window."""
    broken: int
    """Requests, of all, that were not whole: failed, missing, or short of tokens."""
    error_p50_ms: float
    error_p99_ms: float
    error_max_ms: float
    """TTFT error: the client's time of the first token minus the server's, just before it wrote it."""
    request_p99_ms: float
    """From the client's 'sent' to the server's 'received'."""
    server_late_p50_ms: float
    server_late_p99_ms: float
    """How much later than scripted the server itself wrote."""
    short_writes: int
    """Times when the client had left so much unread that the kernel took no more."""

    @property
    def fraction(self) -> float:
        """Reached of what was offered."""
        return self.tokens_per_s / self.load.tokens_per_s


def climb(
    name: str, client: Client, load: Load, folder: Path, client_cpus: Sequence[int], server_cpus: Sequence[int]
) -> Rung:
    """Play `load` once and compare both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    with serving(load.script, folder, server_cpus) as url:
        seen = client(url, load, folder, client_cpus)
    return compared(name, load, seen, Report.read(folder / "truth.json"))


@contextmanager
def serving(script: Script, folder: Path, cpus: Sequence[int]) -> Iterator[str]:
    """Run a server in a process of its own, and yield its URL; its truth is in `folder` afterwards."""
    (folder / "script.json").write_text(json.dumps(asdict(script)), encoding="utf-8")
    argv = [sys.executable, "-m", "tests.bench.load.server", str(folder / "script.json"), str(folder / "truth.json")]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.sched_setaffinity(process.pid, cpus)
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(30)


def compared(name: str, load: Load, seen: Sequence[Seen], report: Report) -> Rung:
    """Compare what a client saw with the truth."""
    truths = {truth.key: truth for truth in report.truths if truth.key >= 0}
    whole = {s.key: s for s in seen if s.chunks == load.tokens}
    in_order = sorted(truths.values(), key=lambda truth: truth.received_ns)
    steady = [t for t in in_order[load.streams :] if t.key in whole]
    late_ns: list[float] = [whole[t.key].first_token_ns - t.first_write_ns for t in steady]
    asked_ns: list[float] = [t.received_ns - whole[t.key].sent_ns for t in steady]
    late_ms = np.array(late_ns or [math.nan]) / 1e6
    p50, p99 = np.percentile(late_ms, [50, 99])
    return Rung(
        client=name,
        load=load,
        tokens_per_s=rate_of(in_order, load.streams),
        counted=len(steady),
        broken=load.requests - len(whole),
        error_p50_ms=float(p50),
        error_p99_ms=float(p99),
        error_max_ms=float(late_ms.max()),
        request_p99_ms=float(np.percentile(asked_ns or [math.nan], 99)) / 1e6,
        server_late_p50_ms=report.late_p50_ms,
        server_late_p99_ms=report.late_p99_ms,
        short_writes=report.short_writes,
    )


def rate_of(in_order: Sequence[Truth], streams: int) -> float:
    """Tokens a second from when every slot streams to the last request: slots are all busy then.

    The server writes on schedule; a client that lags asks again later, which is what lowers the rate.
    """
    if len(in_order) <= streams:
        return 0.0
    start_ns = max(truth.first_write_ns for truth in in_order[:streams]) + round(SETTLE_S * 1e9)
    end_ns = in_order[-1].received_ns
    if end_ns <= start_ns:
        return 0.0
    tokens = 0.0
    for truth in in_order:
        took_ns = max(1, truth.last_write_ns - truth.first_write_ns)
        inside_ns = min(end_ns, truth.last_write_ns) - max(start_ns, truth.first_write_ns)
        tokens += truth.tokens * max(0.0, min(1.0, inside_ns / took_ns))
    return tokens / ((end_ns - start_ns) / 1e9)
