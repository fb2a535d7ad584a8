"""How TTFT is spread over the requests of the compared settings: as a whole, by tier and by turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from harness.metrics.groups import TIERS, UNKNOWN
from harness.statistics import Floats, quantile
from tuning.report.figure import OFF, Plot, escaped, finished, left_out
from tuning.report.played import Played, colour_of

NOTHING = "no request of a counted session was answered"
CDF_POINTS = 400
TAIL_POINTS = 100
"""The slowest requests are what a P99 is about, so each of them is drawn."""
FEWEST = 5
"""Requests of a tier that make a curve."""
TIER_WORDS = {"none": "nothing cached"}
ROW_HEIGHT_PX = 190


def ttft_distribution(settings: Sequence[Played]) -> Plot:
    """Draw which share of the requests had their first token in which time."""
    title = "Time to first token"
    if not settings:
        return left_out(title, NOTHING)
    figure = go.Figure()
    for setting in settings:
        _add_curve(figure, setting, setting.requests["ttft_s"].to_numpy(dtype=np.float64))
    figure.add_hline(y=0.99, line={"color": OFF, "width": 1, "dash": "dot"})
    _label_axes(figure)
    trials = ", ".join(str(record.number) for setting in settings for record in setting.records)
    return finished(
        title, f"Share of requests answered within a time; diamonds mark P99. From trials {trials}.", figure
    )


def ttft_by_tier(settings: Sequence[Played]) -> Plot:
    """Draw the same for the requests of each tier, one below the other on one scale."""
    title = "Time to first token by tier"
    curves = [
        (tier, setting, took_s)
        for tier in TIERS
        for setting in settings
        if len(took_s := _of_tier(setting, tier)) >= FEWEST
    ]
    if not any(tier != UNKNOWN for tier, _, _ in curves):
        return left_out(title, "the engine did not say from which tier prompts were served")
    tiers = list(dict.fromkeys(tier for tier, _, _ in curves))
    figure = make_subplots(rows=len(tiers), cols=1, shared_xaxes=True, vertical_spacing=0.18 / len(tiers))
    named: set[str] = set()
    for tier, setting, took_s in curves:
        row = tiers.index(tier) + 1
        _add_curve(figure, setting, took_s, row=row, named=setting.role not in named)
        named.add(setting.role)
    _label_axes(figure)
    for row, tier in enumerate(tiers, start=1):
        figure.update_xaxes(title="" if row < len(tiers) else "TTFT, seconds (log scale)", row=row, col=1)
        figure.update_yaxes(title=TIER_WORDS.get(tier, tier), row=row, col=1)
    counts = "; ".join(
        f"{TIER_WORDS.get(tier, tier)}: "
        + ", ".join(f"{len(took_s):,} with {setting.role}" for name, setting, took_s in curves if name == tier)
        for tier in tiers
    )
    caption = f"By the slowest tier that any of the prompt's cached tokens came from. Requests: {counts}."
    return finished(title, caption, figure, height=100 + ROW_HEIGHT_PX * len(tiers))


def ttft_by_turn(settings: Sequence[Played]) -> Plot:
    """Draw median and P90 of TTFT by the turn of the session."""
    title = "Turn by turn"
    if not settings:
        return left_out(title, NOTHING)
    figure = go.Figure()
    for setting in settings:
        turns = setting.requests.groupby("turn")["ttft_s"]
        for name, q, dash in (("P50", 0.5, "solid"), ("P90", 0.9, "dot")):
            values = turns.quantile(q)
            figure.add_scatter(
                x=[int(turn) + 1 for turn in values.index], y=values.tolist(), mode="lines+markers",
                name=f"{escaped(setting.role)}, {name}", marker={"size": 6},
                line={"color": colour_of(setting), "width": 2, "dash": dash},
                hovertemplate="%{y:.3f} s in turn %{x}",
            )  # fmt: skip
    figure.update_xaxes(title="turn of the session", dtick=1)
    figure.update_yaxes(title="TTFT, seconds", rangemode="tozero")
    return finished(
        title,
        "TTFT by turn: histories grow, so this is where a lost cache shows. First turns have no history.",
        figure,
    )


def _of_tier(setting: Played, tier: str) -> Floats:
    took_s = setting.requests["ttft_s"].to_numpy(dtype=np.float64)
    chosen: Floats = took_s[setting.tiers == tier]
    return chosen


def _add_curve(figure: Any, setting: Played, took_s: Floats, *, row: int | None = None, named: bool = True) -> None:
    """Add one setting's curve, with a diamond at its P99 where that may be compared."""
    values = np.sort(took_s)
    ranks = _ranks(len(values))
    name, colour = escaped(setting.role), colour_of(setting)
    place = {} if row is None else {"row": row, "col": 1}
    figure.add_scatter(
        x=values[ranks].tolist(), y=((ranks + 1) / len(values)).tolist(),
        name=name if setting.sustained else f"{name} (not sustained)", showlegend=named, legendgroup=name,
        line={"color": colour, "width": 3 if setting.leads else 2, "shape": "hv"},
        hovertemplate="%{y:.1%} within %{x:.3f} s", **place,
    )  # fmt: skip
    if setting.sustained:
        figure.add_scatter(
            x=[quantile(values, 0.99)], y=[0.99], mode="markers", showlegend=False, legendgroup=name,
            marker={"color": colour, "size": 11, "symbol": "diamond", "line": {"color": "white", "width": 1}},
            hovertemplate=f"{name}: P99 %{{x:.3f}} s<extra></extra>", **place,
        )  # fmt: skip


def _label_axes(figure: Any) -> None:
    ticks = [base * 10.0**power for power in range(-4, 4) for base in (1, 2, 5)]
    figure.update_xaxes(
        type="log", title="TTFT, seconds (log scale)", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks]
    )
    figure.update_yaxes(title="share of requests", tickformat=".0%", range=[0, 1.02])


def _ranks(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Choose which of `count` sorted values are drawn: evenly spread ones and the whole tail."""
    spread = np.linspace(0, count - 1, min(count, CDF_POINTS)).round().astype(np.int64)
    return np.union1d(spread, np.arange(max(0, count - TAIL_POINTS), count))
