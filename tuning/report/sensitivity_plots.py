"""The plots of what decides: importance of the flags, and TTFT P99 against each of them."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tuning.report import words
from tuning.report.figure import BEST, DROPPED, HOVER_TEXT, OFF, Plot, escaped, finished, left_out
from tuning.report.sensitivity import Point, Sensitivity, Slice, value_text

IMPORTANCE = "Importance of the flags"


def importance_plot(found: Sensitivity) -> Plot:
    """Draw each flag's share of the importance, beside what chance gives."""
    if not found.importance:
        return left_out(IMPORTANCE, found.why_none or "no setting was searched")
    ordered = found.importance[::-1]
    labels = [escaped(each.flag) for each in ordered]
    figure = go.Figure()
    figure.add_bar(
        y=labels, x=[each.share for each in ordered], orientation="h", name="importance",
        marker={"color": [BEST if each.stands_out else OFF for each in ordered]},
        hovertemplate="%{y}: %{x:.0%}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        y=labels, x=[each.by_chance for each in ordered], mode="markers", name="by chance, one time in twenty",
        marker={"color": DROPPED, "size": 14, "symbol": "line-ns-open", "line": {"width": 2}},
        hovertemplate="%{x:.0%} by chance<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="share of the importance of all flags", tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(automargin=True)
    return finished(IMPORTANCE, importance_note(found), figure, height=120 + 36 * len(labels))


def importance_note(found: Sensitivity) -> str:
    """Say what the importance rests on and which flags stand out."""
    names = [each.flag for each in found.importance if each.stands_out]
    standing = f"{', '.join(names)} stand{'s' if len(names) == 1 else ''} out" if names else "no flag stands out"
    return (
        f"What tells the best {found.best} of {found.trials} searched settings from the others (PED-ANOVA): {standing}."
        " A bar that does not reach past its mark is no more than chance gives to shuffled results."
    )


def slice_plots(found: Sensitivity) -> list[Plot]:
    """Draw TTFT P99 of the search against each flag that was varied."""
    return [_slice_plot(each) for each in found.slices if any(point.p99_s is not None for point in each.points)]


def _slice_plot(found: Slice) -> Plot:
    figure = go.Figure()
    top_s = 1.05 * max(point.p99_s for point in found.points if point.p99_s is not None)
    for name, colour, symbol, points in (
        ("feasible", BEST, "circle", [p for p in found.points if p.feasible]),
        ("breaks a constraint", DROPPED, "circle-open", [p for p in found.points if not p.feasible and p.p99_s]),
        ("no P99 to compare", DROPPED, "x", [p for p in found.points if p.p99_s is None]),
    ):
        if points:
            figure.add_scatter(
                x=_axis(found, points), y=[point.p99_s or top_s for point in points], mode="markers", name=name,
                marker={"color": colour, "size": 8, "symbol": symbol, "opacity": 0.75},
                text=[
                    f"{escaped(value_text(point.value))}: P99 {words.seconds(point.p99_s)} s, trial {point.trial}"
                    for point in points
                ],
                hovertemplate=HOVER_TEXT,
            )  # fmt: skip
    if found.alone:
        figure.add_scatter(
            x=_axis(found, found.alone), y=[point.p99_s for point in found.alone], mode="lines", name="this flag alone",
            line={"color": BEST, "width": 2}, hoverinfo="skip",
        )  # fmt: skip
    if not _numeric(found):
        places = list(dict.fromkeys(_axis(found, found.points)))
        figure.update_xaxes(type="category", categoryarray=places, range=[-0.5, len(places) - 0.5])
    figure.update_xaxes(title=escaped(found.flag), automargin=True)
    figure.update_yaxes(title="TTFT P99, seconds", rangemode="tozero")
    alone = "The line joins settings that differ from the leading one in this flag alone." if found.alone else (
        "No two measured settings differ from the leading one in this flag alone."
    )  # fmt: skip
    return finished(found.flag, alone, figure, height=300, small=True)


def _axis(found: Slice, points: Sequence[Point]) -> list[float | str]:
    if _numeric(found):
        return [float(point.value) for point in points]
    return [escaped(value_text(point.value)).replace("/", "/<br>") for point in points]


def _numeric(found: Slice) -> bool:
    return all(isinstance(point.value, int | float) and not isinstance(point.value, bool) for point in found.points)
