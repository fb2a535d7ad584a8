"""The settings of a Pareto search that trade its goals against each other, as cells of a table."""

from __future__ import annotations

from tuning.objective import read_metric
from tuning.report.words import UNKNOWN
from tuning.verdict import FrontPoint, Verdict


def front_heads(verdict: Verdict) -> tuple[str, ...]:
    """Return the heads of the table; empty when there were no further goals."""
    goals = verdict.front[0].values if verdict.front else ()
    return ("trial", "setting", *(read_metric(goal).title for goal in goals))


def front_cells(point: FrontPoint) -> tuple[str, ...]:
    """Return the cells of one setting under `front_heads`."""
    figures = (UNKNOWN if value is None else read_metric(goal).unit.say(value) for goal, value in point.values.items())
    return (str(point.trial), point.label, *figures)
