"""What the benchmark found, as tables for people and as the measured part of docs/search-benchmark.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table as Lines

from tests.bench.search.equal import EqualSettings
from tests.bench.search.race import Result, trials_of
from tests.bench.search.table import Table

PAGE = Path(__file__).parents[3] / "docs" / "search-benchmark.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Raced:
    """One table and what each rival reached on it."""

    table: Table
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Findings:
    """All that one run of the benchmark found."""

    versions: str
    seeds: int
    raced: Sequence[Raced]
    equal: EqualSettings
    left_out: Sequence[str]
    """Samplers and tables that could not be used, a sentence each."""


def lines(findings: Findings) -> Iterator[Lines]:
    """Make one table of figures for each recorded table, then that of the A/A test."""
    for raced in findings.raced:
        settings, trials = len(raced.table.truth_s), trials_of(raced.table)
        title = f"{raced.table.name}: {settings} settings, searches of {trials} trials, {findings.seeds} seeds"
        found = Lines(title=title, box=box.MARKDOWN, title_justify="left")
        for heading in ("sampler", "median regret", "mean", "P90", "within 5 %", "redrawn: median", "mean"):
            found.add_column(heading, justify="left" if heading == "sampler" else "right")
        for result in raced.results:
            found.add_row(
                result.rival,
                f"{result.median:.1%}",
                f"{result.mean:.1%}",
                f"{result.p90:.1%}",
                f"{result.share_within(0.05):.0%}",
                f"{float(np.median(result.redrawn)):.1%}",
                f"{float(np.mean(result.redrawn)):.1%}",
            )
        yield found
    low, high = findings.equal.bounds
    equal = Lines(title="All settings equal", box=box.MARKDOWN, title_justify="left")
    for heading in ("confirmations drawn", "false improvements", "rate", "95 % interval"):
        equal.add_column(heading, justify="right")
    counts = findings.equal
    equal.add_row(str(counts.draws), str(counts.false_improvements), f"{counts.rate:.1%}", f"{low:.1%} - {high:.1%}")
    yield equal


def write_page(findings: Findings) -> None:
    """Replace the measured part of the page."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has lost its marks {BEGIN} and {END}; put them back around the measured part")
    tables = (f"**{table.title}**\n\n{_markdown(table)}" for table in lines(findings))
    parts = [f"Measured with {findings.versions}.", *findings.left_out, *tables]
    measured = "\n\n".join(parts)
    PAGE.write_text(f"{before}{begin}\n{measured}\n{end}{after}", encoding="utf-8")


def _markdown(table: Lines) -> str:
    columns = [list(column.cells) for column in table.columns]
    heads = [str(column.header) for column in table.columns]
    rule = ["---:" if column.justify == "right" else "---" for column in table.columns]
    rows = [heads, rule, *zip(*columns, strict=True)]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)
