"""Every trial as a row of CSV, for a spreadsheet or a data frame: units are in the names, an empty cell is unknown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tuning.report.rows import TrialRow

FLAG = "flag_"
"""What the columns of flags begin with; the name after it is that of the search space."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
QUANTILES = ("p50_s", "p90_s", "p95_s", "p99_s", "p999_s", "max_s", "p99_low_s", "p99_high_s", "count")
PLAIN = (
    "whole_run_p99_s", "first_turns_p99_s", "requests_per_s", "output_tokens_per_s", "ok", "counted", "cut",
    "error_rate", "device_hit_rate", "host_hit_rate", "storage_hit_rate", "reload_tokens", "reload_bytes",
    "device_headroom_bytes", "host_headroom_bytes", "device_pool_tokens", "host_pool_tokens", "host_pool_bytes",
    "duration_s",
)  # fmt: skip
"""Figures that stand in a row as they are."""

DIGITS = 9
"""Decimals that are kept: nanoseconds of what is in seconds."""

Cell = str | int | float | bool | None


def trials_csv(rows: Sequence[TrialRow]) -> str:
    """Write one line for each of `rows`, in the order of measurement."""
    flags = list(dict.fromkeys(name for row in rows for name in row.values))
    heads = ["trial", "purpose", "setting", "key", "seed", "outcome", "feasible", "winner", "failure", "reason"]
    heads += [f"{FLAG}{name}" for name in flags] + [f"ttft_{name}" for name in QUANTILES] + list(PLAIN)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_plain_text, heads))
    for row in sorted(rows, key=lambda row: row.number):
        writer.writerow([_plain_text(cell) for cell in _cells(row, flags)])
    return text.getvalue()


def _cells(row: TrialRow, flags: Sequence[str]) -> list[Cell]:
    failure = row.failure.value if row.failure else None
    named: list[Cell] = [row.number, row.purpose, row.label, row.key, row.seed, row.outcome.value]
    said: list[Cell] = [row.feasible, row.winner, failure, row.reason]
    asked: list[Cell] = [row.values.get(name) for name in flags]
    ttft: list[Cell] = [getattr(row.ttft, name, None) for name in QUANTILES]
    return [*named, *said, *asked, *ttft, *(getattr(row, name) for name in PLAIN)]


def _plain_text(cell: Cell) -> Cell:
    """Keep a spreadsheet from running a text as a formula, and write switches as JSON does."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return round(cell, DIGITS)
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell
