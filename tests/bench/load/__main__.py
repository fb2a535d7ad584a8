"""`make bench-load`: how many streamed tokens a second our client reads truly, beside other clients.

A table for people on stderr, JSON on stdout. `--write-docs` puts the table into docs/load-benchmark.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from harness.engine.cpu.engine import find
from harness.errors import HicacheTuneError
from tests.bench.load import others, ours
from tests.bench.load.ladder import Reach, reach
from tests.bench.load.page import Findings, machine, tables, write_page
from tests.bench.load.rung import ROOT, Client, Load, Rung, climb

PEERS = ROOT / "build" / "bench" / "venv" / "bin" / "python"
TOKENS = 50
STREAMS = 200
"""Of the ladder: few enough that a slow client's requests end within seconds."""
SECONDS = 4.0
LOG_WIDTH = 140
OURS = "hicache-tune"
START = {
    OURS: 50_000.0,
    "sglang.bench_serving": 22_000.0,
    "guidellm": 1_600.0,
    "gevent sockets": 32_000.0,
    "Locust FastHttpUser": 22_000.0,
    "aiohttp": 40_000.0,
    "httpx": 5_000.0,
}
"""Tokens a second at which the ladder of each client begins: near where it ends, to save time."""


def main() -> None:
    """Measure, show, and write what is asked for."""
    options = _options()
    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    cpus = sorted(os.sched_getaffinity(0))
    server_cpus, client_cpus = (cpus[:1], cpus[-1:])
    os.sched_setaffinity(0, server_cpus)  # whatever we do ourselves is not at the client's cost
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # inherited by server and client
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        bench = _Bench(Path(folder), server_cpus, client_cpus, console)
        findings = Findings(
            machine=machine(server_cpus, client_cpus),
            realtime=options.realtime,
            versions=_versions(),
            full=bench.fixed("1,000 streams", Load(1000, TOKENS, 10_000, SECONDS * 2)),
            half=bench.fixed("half of that", Load(500, TOKENS, 5_000, SECONDS * 2)),
            most=bench.fixed("as fast as it goes", Load(1000, TOKENS, 100_000, SECONDS)),
            reaches=bench.reaches(options.only),
        )
    for table in tables(findings):
        console.print(table)
    text = json.dumps(asdict(findings), indent=2)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")
    if options.write_docs:
        write_page(findings)


class _Bench:
    """Runs rungs one after another, each in a folder of its own, and says how each went."""

    def __init__(self, folder: Path, server_cpus: Sequence[int], client_cpus: Sequence[int], console: Console) -> None:
        self._folder = folder
        self._server_cpus, self._client_cpus = server_cpus, client_cpus
        self._console = console
        self._number = 0

    def fixed(self, what: str, load: Load) -> Rung:
        """Play one load with our client."""
        self._console.print(f"{OURS}: {what}, {load.tokens_per_s:,.0f} tokens/s offered")
        return self._climb(OURS, ours.play, load)

    def reaches(self, only: Sequence[str]) -> tuple[Reach, ...]:
        """Find how far each client gets."""
        found = []
        for name, client in _clients().items():
            if only and not any(word in name for word in only):
                continue
            if client is None:
                found.append(Reach(name, (), "not installed"))
                continue
            found.append(reach(name, lambda rate, n=name, c=client: self._step(n, c, rate), START[name]))  # type: ignore[misc]
        return tuple(found)

    def _step(self, name: str, client: Client, rate: float) -> Rung:
        return self._climb(name, client, Load(STREAMS, TOKENS, rate, SECONDS))

    def _climb(self, name: str, client: Client, load: Load) -> Rung:
        self._number += 1
        folder = self._folder / f"{self._number:02d}"
        rung = climb(name, client, load, folder, self._client_cpus, self._server_cpus)
        figures = (
            f"{load.tokens_per_s:,.0f} tokens/s offered, {rung.tokens_per_s:,.0f} reached, {rung.broken} not whole, "
            f"TTFT error P99 {rung.error_p99_ms:.2f} ms, server late P99 {rung.server_late_p99_ms:.2f} ms"
        )
        self._console.print(f"  {name}: {figures}", highlight=False, soft_wrap=True)
        return rung


def _clients() -> Mapping[str, Client | None]:
    here, peers = others.python_here(), PEERS if PEERS.exists() else None
    try:
        serving: Client | None = others.bench_serving(find())
    except HicacheTuneError:
        serving = None
    return {
        OURS: ours.play,
        "sglang.bench_serving": serving,
        "guidellm": others.guidellm(peers) if peers else None,
        "gevent sockets": others.stack("greenlet_stacks", "sockets", here),
        "Locust FastHttpUser": others.stack("greenlet_stacks", "fasthttp", here),
        "aiohttp": others.stack("asyncio_stacks", "aiohttp", peers) if peers else None,
        "httpx": others.stack("asyncio_stacks", "httpx", here),
    }


def _versions() -> dict[str, str]:
    peers = others.versions(PEERS, ("guidellm", "aiohttp")) if PEERS.exists() else {}
    here = others.versions(others.python_here(), ("locust", "gevent", "geventhttpclient", "httpx", "orjson"))
    try:
        return {**here, **peers, "sglang": find().sglang_version}
    except HicacheTuneError:
        return {**here, **peers}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there in place of stdout")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/load-benchmark.md")
    parser.add_argument("--realtime", action="store_true", help="run at real-time priority, on a busy machine (root)")
    parser.add_argument("--only", nargs="*", default=(), metavar="WORD", help="climb only with clients named like this")
    return parser.parse_args()


if __name__ == "__main__":
    main()
