"""A real node_exporter, for one scrape."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence

import httpx

from tests.support.cpu_engine import free_port

READY_LIMIT_S = 30.0
MISSING = "this test needs node_exporter: apt-get install --no-install-recommends prometheus-node-exporter"


def scraped(flags: Sequence[str]) -> str:
    """Start it with `flags`, but on a free port and with the textfile collector alone, and return what it shows."""
    program = shutil.which("prometheus-node-exporter")
    assert program, MISSING
    address = f"127.0.0.1:{free_port()}"
    kept = [flag for flag in flags if not flag.startswith("--web.listen-address")]
    argv = [program, *kept, f"--web.listen-address={address}", "--collector.disable-defaults", "--collector.textfile"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return _scrape(f"http://{address}/metrics", process)
        finally:
            process.terminate()


def _scrape(url: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + READY_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            return httpx.get(url, trust_env=False).raise_for_status().text
        except httpx.ConnectError:
            time.sleep(0.05)
    raise AssertionError(f"node_exporter does not answer; its exit code is {process.poll()}")
