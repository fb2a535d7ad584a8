"""Measure the CPU engine: time to first token of a cold prompt, of a device hit and of a host hit.

Run by hand: `python -m tests.bench.cpu_engine [RUNS] [FLAG...]`; further flags go to the engine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.engine.cpu.engine import find
from tests.support.cpu_engine import RunningEngine, launched, random_prompts

PROMPT_TOKENS = 2000
FLAGS = ("--enable-hierarchical-cache", "--hicache-ratio", "3")


def main(runs: int, *flags: str) -> None:
    """Print the launch time, the KV pool and a table of the three kinds of prompt."""
    out = Console()
    with (
        tempfile.TemporaryDirectory() as folder,
        launched(find(), Path(folder) / "engine.log", *FLAGS, *flags) as engine,
    ):
        out.print(f"launch {engine.launch_s:.1f} s, KV pool {engine.kv_pool_tokens()} tokens, {runs} runs")
        out.print(table(measure(engine, runs)))


def measure(engine: RunningEngine, runs: int) -> dict[str, list[float]]:
    """Return the TTFTs in seconds by kind; between device and host hit, other prompts push the first one out."""
    others = random_prompts(engine.kv_pool_tokens() // PROMPT_TOKENS + 1, PROMPT_TOKENS, seed=0)
    ttft_s: dict[str, list[float]] = {"cold": [], "device hit": [], "host hit": []}
    for prompt in [*random_prompts(runs, PROMPT_TOKENS, seed=1)]:
        ttft_s["cold"].append(engine.ttft_s(prompt))
        ttft_s["device hit"].append(engine.ttft_s(prompt))
        for other in others:
            engine.ttft_s(other)
        ttft_s["host hit"].append(engine.ttft_s(prompt))
    return ttft_s


def table(ttft_s: dict[str, list[float]]) -> Table:
    """Show median and range of each kind, and how many times slower a cold prompt is."""
    cold_s = statistics.median(ttft_s["cold"])
    shown = Table("prompt", "TTFT median ms", "min", "max", "cold / this")
    for kind, values in ttft_s.items():
        median_s = statistics.median(values)
        figures = [f"{value * 1000:.0f}" for value in (median_s, min(values), max(values))]
        shown.add_row(kind, *figures, f"{cold_s / median_s:.1f}")
    return shown


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, *sys.argv[2:])
