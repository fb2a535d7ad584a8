"""The sections of plots, and those of whole trials: their history and where prompts came from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from harness.store import TrialRecord
from tuning.objective import TTFT_P99, Metric, read_objective
from tuning.report.data import StudyResult
from tuning.report.distribution import ttft_by_tier, ttft_by_turn, ttft_distribution
from tuning.report.figure import (
    BEST,
    DROPPED,
    HOVER_TEXT,
    OFF,
    ON,
    STORAGE,
    Plot,
    Section,
    add_values,
    axis_of,
    escaped,
    finished,
    left_out,
)
from tuning.report.front_plots import front_plots
from tuning.report.over_time import memory_and_reloads
from tuning.report.played import Played, Watched
from tuning.report.rows import TrialRow
from tuning.report.sensitivity_plots import importance_plot, slice_plots
from tuning.report.timeline import ttft_over_time

SYMBOLS = {"search": "circle", "confirm": "diamond"}
OTHER_SYMBOL = "square"
MOST_SETTINGS = 24
"""More bars than this are longer than any screen."""


def all_plots(
    result: StudyResult,
    settings: Sequence[Played],
    watched: Sequence[Watched],
    *,
    requests: tuple[TrialRecord, pd.DataFrame] | None,
) -> list[Section]:
    """Draw every plot of the report, in its order."""
    rows, metric = result.trials, read_objective(result.verdict.objective)
    return [
        Section(
            "Latency",
            (
                ttft_distribution(settings),
                ttft_by_tier(settings),
                ttft_by_turn(settings),
                ttft_over_time(requests),
            ),
        ),
        Section("The search", (trial_history(rows, metric), tokens_by_tier(rows))),
        Section("What decides", (importance_plot(result.sensitivity), *slice_plots(result.sensitivity))),
        Section("What it is paid with", front_plots(result.fronts, rows)),
        Section("Memory and reloads", (memory_and_reloads(watched),)),
    ]


def trial_history(rows: Sequence[TrialRow], metric: Metric = TTFT_P99) -> Plot:
    """Draw what every trial is compared by in the order of measurement, and the best of the search so far."""
    title = "Trials in order"
    timed = sorted((row for row in rows if row.value is not None), key=lambda row: row.number)
    if not timed:
        return left_out(title, f"no trial has a {metric.title} that may be compared")
    figure = go.Figure()
    feasible = [row for row in timed if row.feasible]
    for purpose in dict.fromkeys((*SYMBOLS, *(row.purpose for row in feasible))):
        of_purpose, symbol = [r for r in feasible if r.purpose == purpose], SYMBOLS.get(purpose, OTHER_SYMBOL)
        add_values(figure, of_purpose, _number, escaped(purpose), BEST, symbol, metric=metric)
    infeasible = [row for row in timed if not row.feasible]
    add_values(figure, infeasible, _number, "breaks a constraint", DROPPED, "circle-open", metric=metric)
    highs = [row.ttft.p99_high_s if row.ttft and metric == TTFT_P99 else row.value for row in timed]
    top = max(high or row.value or 0.0 for high, row in zip(highs, timed, strict=True)) * 1.08
    untimed = [row for row in rows if row.value is None]
    if untimed:
        figure.add_scatter(
            x=[row.number for row in untimed], y=[top] * len(untimed), mode="markers", name="nothing to compare",
            marker={"color": DROPPED, "size": 10, "symbol": "x-thin", "line": {"color": DROPPED, "width": 2}},
            text=[f"{escaped(row.label)}<br>{row.outcome.value}" for row in untimed], hovertemplate=HOVER_TEXT,
        )  # fmt: skip
    searched = [row for row in feasible if row.purpose == "search"]
    if searched:
        better = np.maximum if metric.maximised else np.minimum
        best = better.accumulate([row.value for row in searched if row.value is not None])
        figure.add_scatter(
            x=[row.number for row in searched], y=best.tolist(), mode="lines", name="best so far",
            line={"color": BEST, "width": 1, "dash": "dot", "shape": "hv"}, hoverinfo="skip",
        )  # fmt: skip
    figure.update_xaxes(title="trial", tickformat="d", dtick=max(1, len(rows) // 20))
    figure.update_yaxes(title=axis_of(metric), rangemode="tozero")
    spread = " with its interval" if metric == TTFT_P99 else ""
    caption = f"{metric.title} of each trial{spread}. Search and confirmation play other sessions."
    return finished(title, caption, figure)


def tokens_by_tier(rows: Sequence[TrialRow]) -> Plot:
    """Draw, for each setting of the search, the shares of the prompt tokens that each tier gave."""
    title = "Where prompts came from"
    counted = [row for row in rows if row.purpose == "search" and row.device_hit_rate is not None]
    if not counted:
        return left_out(title, "the engine counted no cached tokens in any trial of the search")
    known = counted[:MOST_SETTINGS]
    labels = [f"{_wrapped(row.label)}  ({row.number})" for row in reversed(known)]
    figure = go.Figure()
    tiers = (
        ("device", BEST, [row.device_hit_rate or 0.0 for row in known]),
        ("host", ON, [row.host_hit_rate or 0.0 for row in known]),
        ("storage", STORAGE, [row.storage_hit_rate or 0.0 for row in known]),
    )
    recomputed = [max(0.0, 1 - sum(shares)) for shares in zip(*(values for _, _, values in tiers), strict=True)]
    for name, colour, shares in (*tiers, ("recomputed", OFF, recomputed)):
        if any(shares):
            figure.add_bar(
                y=labels, x=shares[::-1], name=name, orientation="h", marker={"color": colour},
                hovertemplate=f"{name}: %{{x:.0%}}<extra></extra>",
            )  # fmt: skip
    short = [f"trial {row.number}" for row in reversed(known)]
    figure.update_layout(barmode="stack", bargap=0.35, legend_traceorder="normal", meta={"short": short})
    figure.update_xaxes(title="share of prompt tokens", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(automargin=True)
    shown = f"The first {MOST_SETTINGS} of {len(counted)} settings. " if len(counted) > MOST_SETTINGS else ""
    caption = f"{shown}Prompt tokens by the tier that served them, best setting first; the trial's number in brackets."
    return finished(title, caption, figure, height=120 + 44 * len(known))


def _number(row: TrialRow) -> int:
    return row.number


def _wrapped(label: str, words: int = 2) -> str:
    parts = escaped(label).split(", ")
    return ",<br>".join(", ".join(parts[start : start + words]) for start in range(0, len(parts), words))
