"""The settings of a Pareto search that trade its goals against each other, as a table."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from tuning.report.trade_offs import front_cells, front_heads
from tuning.verdict import Verdict

NOTE = "No other setting is as good in all of these and better in one; one trial each, only the verdict is confirmed"


def front_table(verdict: Verdict) -> Table:
    """Show a row for each setting and a column for each goal, best first by the objective."""
    table = Table(
        title="Trade-offs", title_justify="left", caption=NOTE, caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    trial, setting, *goals = front_heads(verdict)
    table.add_column(trial, justify="right", no_wrap=True)
    table.add_column(setting, min_width=20, overflow="fold")
    for goal in goals:
        table.add_column(Text(goal), justify="right", overflow="fold")
    for point in verdict.front:
        table.add_row(*map(Text, front_cells(point)))
    return table
