"""The plots of what a lower TTFT P99 is paid with."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tuning.report.figure import BEST, OFF, ON, Plot, add_p99s, finished, left_out
from tuning.report.fronts import Front
from tuning.report.rows import TrialRow


def front_plots(fronts: Sequence[Front], rows: Sequence[TrialRow]) -> tuple[Plot, ...]:
    """Draw each front with all feasible settings of the search."""
    if not fronts:
        return (left_out("TTFT P99 against other goals", "no two feasible settings of the search differ in any"),)
    return tuple(_front_plot(front, rows) for front in fronts)


def _front_plot(front: Front, rows: Sequence[TrialRow]) -> Plot:
    values = {place.trial: front.shown(place) for place in front.places}
    of_front = {place.trial for place in front.places if place.on_front}
    placed = [row for row in rows if row.number in values]
    figure = go.Figure()
    ahead = sorted((row for row in placed if row.number in of_front), key=lambda row: values[row.number])
    if len(ahead) > 1:
        shape = "vh" if front.more_is_better else "hv"
        figure.add_scatter(
            x=[values[row.number] for row in ahead], y=[row.ttft.p99_s for row in ahead if row.ttft], mode="lines",
            name="front", line={"color": BEST, "width": 1, "dash": "dot", "shape": shape}, hoverinfo="skip",
        )  # fmt: skip
    for name, colour, symbol, group in (
        ("HiCache off", OFF, "circle", [row for row in placed if not row.hicache]),
        ("HiCache on", ON, "circle", [row for row in placed if row.hicache and row.number not in of_front]),
        (
            "HiCache on, on the front",
            BEST,
            "diamond",
            [row for row in placed if row.hicache and row.number in of_front],
        ),
    ):
        add_p99s(figure, group, lambda row: values[row.number], name, colour, symbol)
    figure.update_xaxes(title=f"{front.goal}, {front.shown_unit}", automargin=True)
    figure.update_yaxes(title="TTFT P99, seconds", rangemode="tozero")
    better = "more is better" if front.more_is_better else "less is better"
    caption = (
        f"Feasible settings of the search, one trial each; of {front.goal} {better}. No other setting is as good as "
        "one on the front in both and better in one."
    )
    return finished(f"TTFT P99 against {front.goal}", caption, figure, height=340)
