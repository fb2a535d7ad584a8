"""The settings of a Pareto search that trade its goals against each other, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from tuning.objective import Metric
from tuning.report.words import UNKNOWN
from tuning.verdict import FrontPoint

NOTE = "No other setting is as good in all of these and better in one; one trial each, only the verdict is confirmed"


def front_table(front: Sequence[FrontPoint], goals: Sequence[Metric]) -> Table:
    """Show a row for each setting and a column for each goal, best first by the objective."""
    table = Table(
        title="Trade-offs", title_justify="left", caption=NOTE, caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("setting", min_width=20, overflow="fold")
    for goal in goals:
        table.add_column(Text(goal.title), justify="right", overflow="fold")
    for point in front:
        cells = (str(point.trial), point.label, *(_cell(goal, point.values[goal.text]) for goal in goals))
        table.add_row(*map(Text, cells))
    return table


def _cell(goal: Metric, value: float | None) -> str:
    return UNKNOWN if value is None else goal.unit.say(value)
