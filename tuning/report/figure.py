"""What all plots of the report share: colours, size, and the way from a figure to the page.

plotly has no types; its figures are Any here and leave as JSON.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tuning.objective import TTFT_P99, Metric
from tuning.report.rows import TrialRow

OFF, ON, BEST, DROPPED = "#8b93a1", "#d98a29", "#2f7fd6", "#c8553d"
"""HiCache off, on at defaults, the winner, and what may not win: apart for the colour-blind, on light and dark."""
STORAGE = "#7a5aa6"
LEGEND_PX = 40
"""Room for one line of legend, also on paper, where a plot is drawn once and not measured again."""
HOVER_TEXT = "%{text}<extra></extra>"


@dataclass(frozen=True)
class Plot:
    """One plot, or why it is left out."""

    title: str
    caption: str
    figure_json: str | None
    missing: str = ""
    small: bool = False
    """Whether two of its kind fit side by side."""


@dataclass(frozen=True)
class Section:
    """Plots that answer one question."""

    title: str
    plots: tuple[Plot, ...]


def finished(title: str, caption: str, figure: Any, *, height: int = 400, small: bool = False) -> Plot:
    """Give a figure its frame; the colours of text and grid come from the page, which knows light from dark."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 64, "r": 16, "t": LEGEND_PX, "b": 48},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "yref": "container", "yanchor": "top", "y": 1, "x": 0},
        hovermode="closest",
    )
    return Plot(title, caption, str(figure.to_json()), small=small)


def add_values(
    figure: Any, rows: Sequence[TrialRow], x: Callable[[TrialRow], float], name: str, colour: str, symbol: str,
    *, metric: Metric,
) -> None:  # fmt: skip
    """Add a mark for each row's value of the objective; add nothing without rows."""
    if metric == TTFT_P99:
        add_p99s(figure, rows, x, name, colour, symbol)
    elif rows:
        figure.add_scatter(
            x=[x(row) for row in rows], y=[row.value for row in rows], mode="markers", name=name,
            marker={"color": colour, "size": 9, "symbol": symbol},
            text=[
                f"trial {row.number}: {escaped(row.label)}<br>{escaped(metric.title)} {row.value:.4g}"
                for row in rows
            ],
            hovertemplate=HOVER_TEXT,
        )  # fmt: skip


def axis_of(metric: Metric) -> str:
    """Name an axis for the values of `metric`, with their unit."""
    if metric == TTFT_P99:
        return "TTFT P99, seconds"
    return escaped(f"{metric.title}, {metric.unit.name}" if metric.unit.name else metric.title)


def add_p99s(
    figure: Any, rows: Sequence[TrialRow], x: Callable[[TrialRow], float], name: str, colour: str, symbol: str
) -> None:
    """Add a mark for each row's P99 with its interval, at `x` of the row; add nothing without rows."""
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
        hovertemplate=HOVER_TEXT,
    )


def left_out(title: str, why: str) -> Plot:
    """Say in one line why there is no figure."""
    return Plot(title, "", None, why)


def script_json(text: str) -> Markup:
    """Make JSON safe inside a script element, which ends at the first `</script` whatever stands around it."""
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704 - escaped


def escaped(text: str) -> str:
    """Take the meaning of markup from a text: plotly would read a part of HTML in it."""
    return html.escape(text, quote=False)
