"""`make bench-search`: how near the best setting a search ends, and how often a verdict is false.

It searches recorded grids (docs/evidence), whose measurements are resamples of what was recorded; it launches nothing.
A table for people on stderr; `--write-docs` puts it into docs/search-benchmark.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from rich.console import Console

from scenarios.errors import ConfigError
from tests.bench.search.equal import equal_settings
from tests.bench.search.page import Findings, Raced, lines, write_page
from tests.bench.search.race import SAMPLERS, races, rivals_of
from tests.bench.search.table import Table
from tuning.config import SamplerName
from tuning.samplers import check_sampler

EVIDENCE = Path(__file__).parents[3] / "docs" / "evidence"
SEEDS, DRAWS = 50, 200
LOG_WIDTH = 140


def main() -> None:
    """Search, show, and write what is asked for."""
    options = _options()
    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    left_out: list[str] = []
    samplers = list(_samplers(left_out))
    folders = options.folders or sorted(path.parent for path in EVIDENCE.glob("*/study.json"))
    tables = [Table.read(folder) for folder in folders]
    whole = list(_whole(tables, left_out))
    findings = Findings(
        versions=_versions(),
        seeds=options.seeds,
        raced=[Raced(table, tuple(races(table, rivals_of(table, samplers), options.seeds))) for table in whole],
        equal=equal_settings(tables, options.draws),
        left_out=left_out,
    )
    for sentence in left_out:
        console.print(sentence)
    for table in lines(findings):
        console.print(table)
    if options.write_docs:
        write_page(findings)


def _samplers(left_out: list[str]) -> Iterator[SamplerName]:
    """Yield the samplers that can be used here."""
    for name in SAMPLERS:
        try:
            check_sampler(name)
        except ConfigError as problem:
            left_out.append(f"Left out: {problem}.")
        else:
            yield name


def _whole(tables: list[Table], left_out: list[str]) -> Iterator[Table]:
    """Yield the tables that can be searched: full grids."""
    for table in tables:
        if reason := table.why_no_grid:
            left_out.append(
                f"{table.name} is no full grid ({reason}), so it is not searched; its trials are part of the A/A test."
            )
        else:
            yield table


def _versions() -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("optuna", "numpy", "scipy"))
    return f"{versions}, {datetime.now(UTC):%Y-%m-%d}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.search", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="recorded grids; by default all of docs/evidence")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="searches of each sampler (%(default)s)")
    parser.add_argument("--draws", type=int, default=DRAWS, help="confirmations of the A/A test (%(default)s)")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/search-benchmark.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
