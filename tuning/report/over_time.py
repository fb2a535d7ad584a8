"""Memory, queue and reloads of the compared settings while their load went on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from plotly.subplots import make_subplots

from tuning.report.figure import Plot, escaped, finished, left_out
from tuning.report.played import Watched, colour_of

GIB = 2**30
LEAST_SPAN_GIB = 1.0
"""Less than this does not fill a panel: it would make noise look like a trend."""
MOST_POINTS = 600

Line = tuple[list[float], list[float]]
"""Seconds, and a value at each."""


@dataclass(frozen=True)
class Panel:
    """One thing over time."""

    head: str
    line: Callable[[Watched], Line | None]
    from_zero: bool = True


def memory_and_reloads(watched: Sequence[Watched]) -> Plot:
    """Draw free memory, queue, host pool use and reloaded tokens over one trial of each compared setting."""
    title = "Memory, queue and reloads"
    if not watched:
        return left_out(title, "no samples of the compared settings are on disk")
    drawn = [(panel, [(each, line) for each in watched if (line := panel.line(each)) is not None]) for panel in PANELS]
    shown = [(panel, lines) for panel, lines in drawn if lines]
    if not shown:
        return left_out(title, "the samples of the compared settings hold no reading")
    figure = make_subplots(rows=len(shown), cols=1, shared_xaxes=True, vertical_spacing=0.25 / len(shown))
    named: set[str] = set()
    for number, (panel, lines) in enumerate(shown, start=1):
        for each, (seconds, values) in lines:
            role = escaped(each.setting.role)
            figure.add_scatter(
                x=seconds, y=values, name=role, mode="lines", legendgroup=role, showlegend=role not in named,
                line={"color": colour_of(each.setting), "width": 3 if each.setting.leads else 2},
                hovertemplate=f"{role}: %{{y:,.2~f}} at %{{x:.0f}} s<extra></extra>", row=number, col=1,
            )  # fmt: skip
            named.add(role)
        figure.update_yaxes(title=panel.head, row=number, col=1, **_scale(panel, [line for _, line in lines]))
    figure.update_xaxes(title="seconds under load", row=len(shown), col=1)
    trials = ", ".join(f"{each.record.number} ({each.setting.role})" for each in watched)
    caption = f"Trials {trials}. The lowest free memory is the headroom of the tables; memory scales do not start at 0."
    return finished(title, caption, figure, height=90 + 125 * len(shown))


def _sampled(column: str, unit: float = 1.0) -> Callable[[Watched], Line | None]:
    def line(each: Watched) -> Line | None:
        if column not in each.samples:
            return None
        seen = each.samples[each.samples[column].notna()]
        seen = seen.iloc[_thinned(len(seen))]
        return _line(seen["t_ns"], seen[column].astype(float) / unit, each) if len(seen) else None

    return line


def _reloaded(each: Watched) -> Line | None:
    """Add up what came back from host and storage, as the engine told with each reply."""
    if each.requests is None or not each.setting.records[0].setting.hicache:
        return None
    told = each.requests[each.requests["host_cached_tokens"].notna() & each.requests["first_token_ns"].notna()]
    if told.empty:
        return None
    told = told.sort_values("first_token_ns")
    tokens = told["host_cached_tokens"].astype(float) + told["storage_cached_tokens"].fillna(0).astype(float)
    chosen = _thinned(len(told))
    return _line(told["first_token_ns"].iloc[chosen], tokens.cumsum().iloc[chosen], each)


PANELS: Sequence[Panel] = (
    Panel("host GiB free", _sampled("host_available_bytes", GIB), from_zero=False),
    Panel("device GiB free", _sampled("device_free_bytes", GIB), from_zero=False),
    Panel("queued requests", _sampled("queued_requests")),
    Panel("tokens in host pool", _sampled("host_used_tokens")),
    Panel("tokens reloaded", _reloaded),
)


def _line(at_ns: pd.Series[Any], values: pd.Series[Any], each: Watched) -> Line:
    start_ns = int(each.samples["t_ns"].min())
    return ((at_ns.astype("int64") - start_ns) / 1e9).round(2).tolist(), values.round(3).tolist()


def _thinned(count: int) -> Any:
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(np.int64))


def _scale(panel: Panel, lines: Sequence[Line]) -> dict[str, Any]:
    if panel.from_zero:
        return {"rangemode": "tozero"}
    values = [value for _, line in lines for value in line]
    middle, half = (max(values) + min(values)) / 2, max(max(values) - min(values), LEAST_SPAN_GIB) / 2
    return {"range": [max(0.0, middle - 1.1 * half), middle + 1.1 * half]}
