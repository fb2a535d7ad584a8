"""Measure the analysis on one core: a trace of the size of Mooncake's, and one of ten million blocks.

Run by hand: `python -m tests.bench.analysis`. Each trace is written to a file and read back in a process of its own, so
that memory and seconds of the core are those of the whole `hicache-tune analyze`, imports and report apart.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from scenarios.analysis import Assumptions, Machine, analyse, load_of_trace
from scenarios.readers import open_trace

BLOCK_TOKENS = 512
SHARED_BLOCKS = 4
CASES = {"Mooncake's size": (12_031, 24), "ten million blocks": (100_000, 100)}
"""Requests, and blocks of each on average."""


def main() -> None:
    """Write the traces, measure each and print a table."""
    table = Table("trace", "requests", "blocks", "read", "analyse", "core s", "peak GB")
    with tempfile.TemporaryDirectory() as folder:
        for name, (requests, mean_blocks) in CASES.items():
            path = Path(folder) / "trace.jsonl"
            write_trace(path, requests, mean_blocks)
            command = [sys.executable, "-m", "tests.bench.analysis", str(path)]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            seconds = (result["read_s"], result["analyse_s"], result["read_s"] + result["analyse_s"])
            shown = [f"{value:.2f}" for value in (*seconds, result["peak_gb"])]
            table.add_row(name, f"{requests:,}", f"{result['blocks']:,}", *shown)
    Console().print(table)


def write_trace(path: Path, requests: int, mean_blocks: int) -> None:
    """Write a Mooncake trace of sessions that grow by two blocks a turn and share their first blocks."""
    rng = np.random.default_rng(0)
    sessions = max(1, requests // 8)
    histories: dict[int, list[int]] = {}
    next_id = SHARED_BLOCKS
    with path.open("w") as file:
        for number in range(requests):
            session = int(rng.integers(sessions))
            if session not in histories:
                histories[session] = list(range(SHARED_BLOCKS))
            grown = 2 if len(histories[session]) > SHARED_BLOCKS else max(1, mean_blocks - SHARED_BLOCKS - 7)
            histories[session] = histories[session] + list(range(next_id, next_id + grown))
            next_id += grown
            blocks = histories[session]
            row = {
                "timestamp": number * 300,
                "input_length": len(blocks) * BLOCK_TOKENS,
                "output_length": 100,
                "hash_ids": blocks,
            }
            file.write(json.dumps(row) + "\n")


def measure(path: Path) -> None:
    """Analyse one trace on one core and print what it took, as JSON."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    before = time.process_time()
    load = load_of_trace(open_trace(path), assumed=Assumptions(), page_tokens=16)
    read = time.process_time()
    machine = Machine(device_tokens=400_000, kv_bytes_per_token=147_456, prefill_tokens_per_s=10_000)
    analysis = analyse(load, machine)
    done = time.process_time()
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    blocks = analysis.cache.blocks if analysis.cache else 0
    result = {"read_s": read - before, "analyse_s": done - read, "peak_gb": peak_gb, "blocks": blocks}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
    else:
        main()
