"""The plot that shows which part of a load is its steady window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from harness.metrics import answered, ttft_s
from harness.statistics import Floats
from harness.store import TrialRecord
from harness.window import find_window
from tuning.report.figure import BEST, DROPPED, Plot, finished, left_out

TITLE = "The load over time"
MOST_POINTS = 3_000
SLOWEST_POINTS = 300
"""Of more requests the slowest are all drawn, and of the others every so many."""


def ttft_over_time(requests: tuple[TrialRecord, pd.DataFrame] | None) -> Plot:
    """Draw TTFT by the time at which requests were due: first turns apart, the steady window shaded."""
    if requests is None:
        return left_out(TITLE, "no requests of the leading setting are on disk")
    record, every = requests
    frame, window = every[answered(every)], find_window(every)
    if frame.empty or window is None:
        return left_out(TITLE, f"no request of trial {record.number} was answered")
    due_s = ((frame["scheduled_ns"] - every["scheduled_ns"].min()) / 1e9).to_numpy(dtype=np.float64)
    took_s, first = ttft_s(frame), (frame["turn"] == 0).to_numpy(dtype=bool)
    figure = go.Figure()
    figure.add_vrect(
        x0=window.start_s, x1=window.end_s, fillcolor=BEST, opacity=0.1, line_width=0,
        annotation_text="steady window", annotation_position="top left",
    )  # fmt: skip
    for name, chosen, colour, symbol in (
        ("later turns", ~first, BEST, "circle"),
        ("first turns", first, DROPPED, "diamond-open"),
    ):
        rows = np.flatnonzero(chosen)
        rows = rows[thinned(took_s[rows])]
        if len(rows):
            figure.add_scatter(
                x=due_s[rows].round(3).tolist(), y=took_s[rows].round(4).tolist(), mode="markers", name=name,
                marker={"color": colour, "size": 5, "symbol": symbol},
                hovertemplate=f"{name}: %{{y:.3f}} s, due at %{{x:.1f}} s<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title="seconds after the first request was due")
    figure.update_yaxes(title="TTFT, seconds", rangemode="tozero")
    outside = f" {window.counted_outside} counted requests lie outside." if window.counted_outside else ""
    caption = (
        f"Trial {record.number}, {record.setting.label}, warm-up and fillers included. "
        f"The steady window: {window.why}.{outside}"
    )
    return finished(TITLE, caption, figure)


def thinned(took_s: Floats) -> npt.NDArray[np.int64]:
    """Choose which values are drawn: all if they are few, else the slowest and an even part of the others."""
    if len(took_s) <= MOST_POINTS:
        return np.arange(len(took_s))
    slowest = np.argsort(took_s)[-SLOWEST_POINTS:]
    return np.union1d(slowest, np.linspace(0, len(took_s) - 1, MOST_POINTS - SLOWEST_POINTS).astype(np.int64))
