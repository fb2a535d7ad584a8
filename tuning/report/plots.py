"""The plots of the report, each one function from what was measured to a figure, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from harness.statistics import quantile
from harness.store import TrialRecord
from tuning.report.data import TrialRow
from tuning.report.figure import BEST, DROPPED, OFF, ON, STORAGE, Plot, escaped, finished, left_out
from tuning.report.played import Played
from tuning.report.timeline import ttft_over_time

GIB = 2**30
CDF_POINTS = 400
TAIL_POINTS = 100
"""The slowest requests are what a P99 is about, so each of them is drawn."""


def all_plots(
    settings: Sequence[Played],
    rows: Sequence[TrialRow],
    *,
    samples: tuple[TrialRecord, pd.DataFrame] | None,
    requests: tuple[TrialRecord, pd.DataFrame] | None,
) -> list[Plot]:
    """Draw every plot of the report, in its order."""
    return [
        ttft_distribution(settings),
        trial_history(rows),
        p99_by_host_pool(rows),
        tokens_by_tier(rows),
        memory_and_queue(samples),
        ttft_by_turn(settings),
        ttft_over_time(requests),
    ]


def ttft_distribution(settings: Sequence[Played]) -> Plot:
    """Draw which share of the requests had their first token in which time."""
    title = "Time to first token"
    if not settings:
        return left_out(title, "no request of a counted session was answered")
    figure = go.Figure()
    for setting in settings:
        values = np.sort(setting.requests["ttft_s"].to_numpy(dtype=np.float64))
        ranks = _ranks(len(values))
        name, colour = escaped(setting.role), _colour(setting)
        figure.add_scatter(
            x=values[ranks].tolist(),
            y=((ranks + 1) / len(values)).tolist(),
            name=name if setting.sustained else f"{name} (not sustained)",
            line={"color": colour, "width": 3 if setting.leads else 2, "shape": "hv"},
            hovertemplate="%{y:.1%} within %{x:.3f} s",
        )
        if setting.sustained:
            p99_s = quantile(values, 0.99)
            figure.add_scatter(
                x=[p99_s], y=[0.99], mode="markers", showlegend=False,
                marker={"color": colour, "size": 11, "symbol": "diamond", "line": {"color": "white", "width": 1}},
                hovertemplate=f"{name}: P99 %{{x:.3f}} s<extra></extra>",
            )  # fmt: skip
    figure.add_hline(y=0.99, line={"color": OFF, "width": 1, "dash": "dot"})
    ticks = [base * 10.0**power for power in range(-4, 4) for base in (1, 2, 5)]
    figure.update_xaxes(
        type="log", title="TTFT, seconds (log scale)", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks]
    )
    figure.update_yaxes(title="share of requests", tickformat=".0%", range=[0, 1.02])
    trials = ", ".join(str(record.number) for setting in settings for record in setting.records)
    return finished(
        title, f"Share of requests answered within a time; diamonds mark P99. From trials {trials}.", figure
    )


def trial_history(rows: Sequence[TrialRow]) -> Plot:
    """Draw every trial's P99 with its interval in the order of measurement, and the best of the search so far."""
    title = "Trials in order"
    timed = sorted((row for row in rows if row.ttft), key=lambda row: row.number)
    if not timed:
        return left_out(title, "no trial has a P99 that may be compared")
    figure = go.Figure()
    feasible = [row for row in timed if row.feasible]
    for purpose, symbol in (("search", "circle"), ("confirm", "diamond")):
        _add_p99s(figure, [r for r in feasible if r.purpose == purpose], _number, purpose, BEST, symbol)
    _add_p99s(
        figure, [row for row in timed if not row.feasible], _number, "breaks a constraint", DROPPED, "circle-open"
    )
    top = max(row.ttft.p99_high_s or row.ttft.p99_s for row in timed if row.ttft) * 1.08
    untimed = [row for row in rows if not row.ttft]
    if untimed:
        figure.add_scatter(
            x=[row.number for row in untimed], y=[top] * len(untimed), mode="markers", name="no P99 to compare",
            marker={"color": DROPPED, "size": 10, "symbol": "x-thin", "line": {"color": DROPPED, "width": 2}},
            text=[f"{escaped(row.label)}<br>{row.outcome.value}" for row in untimed], hovertemplate=_HOVER_TEXT,
        )  # fmt: skip
    searched = [row for row in feasible if row.purpose == "search"]
    if searched:
        best = np.minimum.accumulate([row.ttft.p99_s for row in searched if row.ttft])
        figure.add_scatter(
            x=[row.number for row in searched], y=best.tolist(), mode="lines", name="best so far",
            line={"color": BEST, "width": 1, "dash": "dot", "shape": "hv"}, hoverinfo="skip",
        )  # fmt: skip
    figure.update_xaxes(title="trial", tickformat="d", dtick=max(1, len(rows) // 20))
    figure.update_yaxes(title="TTFT P99, seconds", rangemode="tozero")
    return finished(
        title, "TTFT P99 of each trial with its interval. Search and confirmation play other sessions.", figure
    )


def p99_by_host_pool(rows: Sequence[TrialRow]) -> Plot:
    """Draw P99 against the size of the host pool; settings without HiCache stand at zero."""
    title = "Host pool"
    sized = [row for row in rows if row.ttft and (row.host_pool_tokens is not None or not row.hicache)]
    if not any(row.host_pool_tokens for row in sized):
        return left_out(title, "no measured trial had a host pool")
    figure = go.Figure()
    groups = (
        ("HiCache off", OFF, "circle", [row for row in sized if row.feasible and not row.hicache]),
        ("HiCache on", BEST, "circle", [row for row in sized if row.feasible and row.hicache]),
        ("breaks a constraint", DROPPED, "circle-open", [row for row in sized if not row.feasible]),
    )
    for name, colour, symbol, group in groups:
        _add_p99s(figure, group, lambda row: row.host_pool_tokens or 0, name, colour, symbol)
    largest = max(row.host_pool_tokens or 0 for row in sized)
    figure.update_xaxes(title="host pool, tokens", range=[-0.04 * largest, 1.04 * largest], tickformat="~s")
    figure.update_yaxes(title="TTFT P99, seconds", rangemode="tozero")
    return finished(
        title, "TTFT P99 against host pool size: where the curve is flat, more host memory buys nothing.", figure
    )


def tokens_by_tier(rows: Sequence[TrialRow]) -> Plot:
    """Draw, for each setting of the search, the shares of the prompt tokens that each tier gave."""
    title = "Where prompts came from"
    known = [row for row in rows if row.purpose == "search" and row.device_hit_rate is not None]
    if not known:
        return left_out(title, "the engine counted no cached tokens in any trial of the search")
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
    figure.update_layout(barmode="stack", bargap=0.35, legend_traceorder="normal")
    figure.update_xaxes(title="share of prompt tokens", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(automargin=True)
    caption = "Prompt tokens by the tier that served them, best setting first; the trial's number in brackets."
    return finished(title, caption, figure, height=120 + 44 * len(known))


def memory_and_queue(samples: tuple[TrialRecord, pd.DataFrame] | None) -> Plot:
    """Draw free memory, queue and host pool use over one trial of the leading setting."""
    title = "Memory and queue"
    if samples is None:
        return left_out(title, "no samples of the leading setting are on disk")
    record, frame = samples
    panels = [
        ("GiB free", (("host_available_bytes", "host", ON, GIB), ("device_free_bytes", "device", BEST, GIB))),
        ("queued requests", (("queued_requests", "queued", DROPPED, 1),)),
        ("tokens in host pool", (("host_used_tokens", "host pool", ON, 1),)),
    ]
    shown = [(head, [line for line in lines if _has(frame, line[0])]) for head, lines in panels]
    shown = [(head, lines) for head, lines in shown if lines]
    if not shown:
        return left_out(title, f"the samples of trial {record.number} hold no reading")
    figure = make_subplots(rows=len(shown), cols=1, shared_xaxes=True, vertical_spacing=0.07)
    start_ns = int(frame["t_ns"].min())
    for number, (head, lines) in enumerate(shown, start=1):
        for column, name, colour, unit in lines:
            seen = frame[frame[column].notna()]
            figure.add_scatter(
                x=((seen["t_ns"] - start_ns) / 1e9).astype(float).round(2).tolist(),
                y=(seen[column].astype(float) / unit).round(3).tolist(),
                name=name, mode="lines", line={"color": colour, "width": 2}, showlegend=len(lines) > 1,
                hovertemplate=f"{name}: %{{y:,.2~f}} at %{{x:.0f}} s<extra></extra>", row=number, col=1,
            )  # fmt: skip
        figure.update_yaxes(title=head, rangemode="tozero", row=number, col=1)
    figure.update_xaxes(title="seconds under load", row=len(shown), col=1)
    caption = f"Trial {record.number}, {record.setting.label}. The lowest free memory is the headroom of the tables."
    return finished(title, caption, figure, height=60 + 170 * len(shown))


def ttft_by_turn(settings: Sequence[Played]) -> Plot:
    """Draw median and P90 of TTFT by the turn of the session."""
    title = "Turn by turn"
    if not settings:
        return left_out(title, "no request of a counted session was answered")
    figure = go.Figure()
    for setting in settings:
        turns = setting.requests.groupby("turn")["ttft_s"]
        for name, q, dash in (("P50", 0.5, "solid"), ("P90", 0.9, "dot")):
            values = turns.quantile(q)
            figure.add_scatter(
                x=[int(turn) + 1 for turn in values.index], y=values.tolist(), mode="lines+markers",
                name=f"{escaped(setting.role)}, {name}", marker={"size": 6},
                line={"color": _colour(setting), "width": 2, "dash": dash}, hovertemplate="%{y:.3f} s in turn %{x}",
            )  # fmt: skip
    figure.update_xaxes(title="turn of the session", dtick=1)
    figure.update_yaxes(title="TTFT, seconds", rangemode="tozero")
    return finished(
        title,
        "TTFT by turn: histories grow, so this is where a lost cache shows. First turns have no history.",
        figure,
    )


_HOVER_TEXT = "%{text}<extra></extra>"


def _add_p99s(figure: Any, rows: Sequence[TrialRow], x: Any, name: str, colour: str, symbol: str) -> None:
    if not rows:
        return
    latencies = [row.ttft for row in rows if row.ttft]
    figure.add_scatter(
        x=[x(row) for row in rows],
        y=[latency.p99_s for latency in latencies],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [(each.p99_high_s or each.p99_s) - each.p99_s for each in latencies],
            "arrayminus": [each.p99_s - (each.p99_low_s or each.p99_s) for each in latencies],
            "thickness": 1.2,
            "width": 3,
        },
        mode="markers",
        name=name,
        marker={"color": colour, "size": 9, "symbol": symbol},
        text=[
            f"trial {row.number}: {escaped(row.label)}<br>P99 {each.p99_s:.3f} s"
            for row, each in zip(rows, latencies, strict=True)
        ],
        hovertemplate=_HOVER_TEXT,
    )


def _number(row: TrialRow) -> int:
    return row.number


def _colour(setting: Played) -> str:
    return BEST if setting.leads else OFF if setting.role == "HiCache off" else ON


def _ranks(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Choose which of `count` sorted values are drawn: evenly spread ones and the whole tail."""
    spread = np.linspace(0, count - 1, min(count, CDF_POINTS)).round().astype(np.int64)
    return np.union1d(spread, np.arange(max(0, count - TAIL_POINTS), count))


def _has(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


def _wrapped(label: str, words: int = 2) -> str:
    parts = escaped(label).split(", ")
    return ",<br>".join(", ".join(parts[start : start + words]) for start in range(0, len(parts), words))
