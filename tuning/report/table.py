"""The answer of a study as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from harness.metrics import Latency, MetricName
from harness.statistics import CONFIDENT_P99_REQUESTS
from harness.store import TrialRecord
from tuning.objective import Objective, read_objective
from tuning.report import words
from tuning.report.detail import Detail
from tuning.report.rows import TrialRow, trial_rows
from tuning.study import BASELINES
from tuning.verdict import Candidate, Verdict

COMPACT_WIDTH = 100
"""Terminals are taken to be this wide unless the caller knows better."""
ROOMY_WIDTH = 150
LONGEST_REASON = 90
FOOTNOTE = f"{words.FEW_REQUESTS} {words.FEW_REQUESTS_NOTE}"

Justify = Literal["left", "right"]


@dataclass(frozen=True)
class Column:
    """One column of the table of trials."""

    head: str
    cell: Callable[[TrialRow], str]
    justify: Justify = "right"
    min_width: int | None = None
    """Given: the column is text that folds when it is longer. None: figures, which never fold."""
    from_width: int = 0
    """Narrower terminals leave the column out."""


def trials_table(
    records: Sequence[TrialRecord], objective: Objective, verdict: Verdict, *, width: int = COMPACT_WIDTH
) -> Table:
    """Show every trial, best first and infeasible ones below with their reason, for a terminal `width` columns wide."""
    rows = trial_rows(records, objective, verdict)
    columns = [column for column in trial_columns(wide=width >= ROOMY_WIDTH) if column.from_width <= width]
    flagged = any(row.ttft is not None and not row.ttft.confident for row in rows)
    table = _table("TTFT of the steady window, in seconds", FOOTNOTE if flagged else None)
    for column in columns:
        folds, fold_at = column.min_width is not None, column.min_width
        table.add_column(column.head, justify=column.justify, no_wrap=not folds, overflow="fold", min_width=fold_at)
    for index, row in enumerate(rows):
        last_of_group = index + 1 < len(rows) and _group(rows[index + 1]) != _group(row)
        cells = (Text(column.cell(row)) for column in columns)
        table.add_row(*cells, style=_style(row), end_section=last_of_group)
    return table


def candidates_table(verdict: Verdict) -> Table:
    """Show the confirmed settings, best first: P99 of all fresh trials together, against HiCache off."""
    flagged = any(candidate.requests < CONFIDENT_P99_REQUESTS for candidate in verdict.candidates)
    table = _table("Confirmation on fresh sessions", FOOTNOTE if flagged else None)
    setting, value, change, pool, requests, stands = candidate_heads(verdict)
    table.add_column(setting, min_width=20, overflow="fold")
    table.add_column(value, justify="right", no_wrap=True)
    table.add_column(change, justify="right")
    table.add_column(pool, justify="right", no_wrap=True)
    table.add_column(requests, justify="right", no_wrap=True)
    table.add_column(stands, min_width=6)
    for candidate in verdict.candidates:
        wins = verdict.winner is not None and candidate.key == verdict.winner.key
        table.add_row(*map(Text, candidate_cells(candidate, verdict)), style="bold" if wins else "")
    return table


def candidate_heads(verdict: Verdict) -> tuple[str, ...]:
    """Return the heads of a table of confirmed settings, with the unit of what they are compared by."""
    metric = read_objective(verdict.objective)
    unit = f", {metric.unit.name}" if metric.unit.name else ""
    return ("setting", f"{metric.title}{unit} (interval)", "against HiCache off", "host pool\ntokens", "requests", "")


def candidate_cells(candidate: Candidate, verdict: Verdict) -> tuple[str, ...]:
    """Return the cells under `candidate_heads`."""
    metric = read_objective(verdict.objective)
    flag = "" if candidate.requests >= CONFIDENT_P99_REQUESTS else words.FEW_REQUESTS
    return (
        candidate.label,
        f"{metric.unit.number(candidate.value)}{flag} {metric.unit.span(candidate.value_low, candidate.value_high)}",
        against_baseline(candidate),
        words.count(candidate.host_pool_tokens),
        words.count(candidate.requests),
        standing(candidate, verdict),
    )


def details_table(found: Sequence[Detail]) -> Table:
    """Show every metric of the compared settings, and TTFT by the tier that served the prompt."""
    rows = [(detail, row) for detail in found for row in detail_rows(detail)]
    flagged = any(not latency.confident for _, (_, latency) in rows)
    table = _table("Baselines and winner, in seconds", FOOTNOTE if flagged else None)
    table.add_column("setting", min_width=8, overflow="fold")
    table.add_column("metric", min_width=10, overflow="fold")
    for head in ("values", "P50", "P90", "P99", "P99.9", "max"):
        table.add_column(head, justify="right", no_wrap=True)
    for index, (detail, (title, latency)) in enumerate(rows):
        new, last = index == 0 or rows[index - 1][0] is not detail, index + 1 < len(rows)
        cells = (
            detail.role if new else "",
            title,
            words.count(latency.count),
            words.seconds(latency.p50_s),
            words.seconds(latency.p90_s),
            _flagged(latency.p99_s, latency.confident),
            words.seconds(latency.p999_s),
            words.seconds(latency.max_s),
        )
        table.add_row(*map(Text, cells), end_section=last and rows[index + 1][0] is not detail)
    return table


def detail_rows(detail: Detail) -> Iterator[tuple[str, Latency]]:
    """Yield every metric of a setting as a whole, and TTFT by tier, each with its name."""
    for metric, found in detail.measured:
        if found.overall is not None:
            yield metric.title, found.overall
        if metric.name is MetricName.TTFT:
            yield from ((f"  {name}", latency) for name, latency in found.by_tier.items())


def against_baseline(candidate: Candidate) -> str:
    """Write a candidate's change against HiCache off at defaults."""
    if candidate.key == BASELINES[0].key:
        return "baseline"
    if candidate.against_baseline is None:
        return words.UNKNOWN
    span = words.change_span(candidate.against_baseline_low, candidate.against_baseline_high)
    return f"{words.change(candidate.against_baseline)} {span}"


def standing(candidate: Candidate, verdict: Verdict) -> str:
    """Say whether a candidate won, or ties with the best and so cannot be told from it."""
    if verdict.winner is not None and candidate.key == verdict.winner.key:
        return "winner"
    return "tie" if candidate.ties_with_best else ""


def trial_columns(*, wide: bool) -> tuple[Column, ...]:
    """Pair figures that are read together: side by side where there is room, one above the other elsewhere."""
    gap, slash = (" ", " / ") if wide else ("\n", "\n")
    return (
        Column("trial", lambda row: f"{row.number}{gap}{row.purpose}", justify="left"),
        Column("setting", lambda row: row.label, justify="left", min_width=16),
        Column(f"P50{slash}P90", lambda row: slash.join(_middle(row))),
        Column(f"P99{gap}(interval)", lambda row: _p99(row, gap)),
        Column(f"hit dev{slash}host", lambda row: slash.join(_hits(row))),
        Column("reloaded\ntokens", lambda row: words.count(row.reload_tokens), from_width=112),
        Column(f"GiB free{gap}host/dev", lambda row: "/".join(_headroom(row)), from_width=90),
        Column(f"errors{slash}took", lambda row: slash.join(_errors(row)), from_width=100),
        Column("outcome", _outcome, justify="left", min_width=13),
    )


def _table(title: str, caption: str | None) -> Table:
    return Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )


def _group(row: TrialRow) -> tuple[bool, str]:
    return row.feasible, row.purpose if row.feasible else ""


def _style(row: TrialRow) -> str:
    return "bold" if row.winner and row.feasible else "" if row.feasible else "dim"


def _p99(row: TrialRow, gap: str) -> str:
    if row.ttft is None:
        return words.UNKNOWN
    return f"{_flagged(row.ttft.p99_s, row.ttft.confident)}{gap}{words.span(row.ttft.p99_low_s, row.ttft.p99_high_s)}"


def _flagged(p99_s: float, confident: bool) -> str:
    return words.seconds(p99_s) + ("" if confident else words.FEW_REQUESTS)


def _middle(row: TrialRow) -> tuple[str, str]:
    return words.seconds(row.ttft.p50_s if row.ttft else None), words.seconds(row.ttft.p90_s if row.ttft else None)


def _hits(row: TrialRow) -> tuple[str, str]:
    return words.share(row.device_hit_rate), words.share(row.host_hit_rate)


def _headroom(row: TrialRow) -> tuple[str, str]:
    return words.gib(row.host_headroom_bytes), words.gib(row.device_headroom_bytes)


def _errors(row: TrialRow) -> tuple[str, str]:
    return words.share(row.error_rate), words.duration(row.duration_s)


def _outcome(row: TrialRow) -> str:
    if row.feasible:
        return "winner" if row.winner else row.outcome.value
    why = row.failure.value if row.failure else row.reason
    said = f"{row.outcome.value}: {why}" if why else row.outcome.value
    return said if len(said) <= LONGEST_REASON else f"{said[: LONGEST_REASON - 1]}…"
