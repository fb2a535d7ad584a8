"""What the benchmark found, as tables for people and as the measured part of docs/load-benchmark.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.table import Table

from tests.bench.load.ladder import ERROR_LIMIT_MS, Reach, sustains
from tests.bench.load.rung import ROOT, Rung

PAGE = ROOT / "docs" / "load-benchmark.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Findings:
    """All that one run measured."""

    machine: str
    realtime: bool
    """All ran at real-time priority, because others used the machine too."""
    versions: Mapping[str, str]
    full: Rung
    half: Rung
    most: Rung
    reaches: tuple[Reach, ...]
    """Ours first."""


def machine(server_cpus: list[int], client_cpus: list[int]) -> str:
    """Say what this was measured on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    shared = "" if server_cpus != client_cpus else ", SHARED by client and server: figures say little"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {model}, {os.cpu_count()} cores{shared}, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def tables(findings: Findings) -> Iterator[Table]:
    """Make the two tables."""
    ours = Table(title="Our client on one core", box=box.MARKDOWN, title_justify="left")
    ours.add_column("load")
    for heading in (
        "tokens/s offered",
        "reached",
        "TTFT error P50",
        "P99",
        "max",
        "streams",
        "not whole",
        "server late P99",
    ):
        ours.add_column(heading, justify="right")
    named = {"1,000 streams": findings.full, "half of that": findings.half, "as fast as it goes": findings.most}
    for name, rung in named.items():
        ours.add_row(name, *_figures(rung), str(rung.load.streams), str(rung.broken), _ms(rung.server_late_p99_ms))
    yield ours

    title = f"Highest rate with TTFT error P99 under {ERROR_LIMIT_MS:g} ms and all streams whole"
    ladder = Table(title=title, box=box.MARKDOWN, title_justify="left")
    ladder.add_column("client")
    for heading in ("tokens/s offered", "reached", "TTFT error P50", "P99", "max", "next step up", "ours / this"):
        ladder.add_column(heading, justify="right")
    first = findings.reaches[0].best if findings.reaches else None
    for found in findings.reaches:
        ladder.add_row(found.client, *_reach_row(found, first))
    yield ladder


def _reach_row(found: Reach, first: Rung | None) -> list[str]:
    best = found.best
    if best is None:
        why = found.failure or f"not even at {min(rung.load.tokens_per_s for rung in found.rungs):,.0f}"
        return [why.splitlines()[0][:60], *[""] * 6]
    over = [r for r in found.rungs if not sustains(r) and r.load.tokens_per_s > best.load.tokens_per_s]
    above = min(over, key=lambda rung: rung.load.tokens_per_s, default=None)
    ratio = f"{first.tokens_per_s / best.tokens_per_s:.1f}" if first else ""
    return [*_figures(best), _failed(above) if above else "not tried", ratio]


def _failed(rung: Rung) -> str:
    what = f"{rung.broken} broken" if rung.broken else f"{rung.fraction:.0%}, P99 {_ms(rung.error_p99_ms)}"
    return f"{rung.load.tokens_per_s:,.0f}: {what}"


def _figures(rung: Rung) -> list[str]:
    rates = (f"{rung.load.tokens_per_s:,.0f}", f"{rung.tokens_per_s:,.0f}")
    return [*rates, *map(_ms, (rung.error_p50_ms, rung.error_p99_ms, rung.error_max_ms))]


def _ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 100 else f"{value:.0f} ms"


def write_page(findings: Findings) -> None:
    """Replace the measured part of the page."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has lost its marks {BEGIN} and {END}; put them back around the measured part")
    versions = ", ".join(f"{name} {version}" for name, version in findings.versions.items())
    busy = " Others used the machine too, so all ran at real-time priority." if findings.realtime else ""
    parts = [f"Measured {findings.machine}.{busy} Versions: {versions}.", *map(_markdown, tables(findings))]
    measured = "\n\n".join(parts)
    PAGE.write_text(f"{before}{begin}\n{measured}\n{end}{after}", encoding="utf-8")


def _markdown(table: Table) -> str:
    columns = [list(column.cells) for column in table.columns]
    heads = [str(column.header) for column in table.columns]
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *zip(*columns, strict=True)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
