"""What a plot of the report draws."""

from __future__ import annotations

import json
from typing import Any

from tuning.report.figure import Plot


def figure_of(plot: Plot) -> dict[str, Any]:
    """Return a plot's figure; fail with why there is none."""
    assert plot.figure_json is not None, plot.missing
    figure: dict[str, Any] = json.loads(plot.figure_json)
    return figure


def traces(plot: Plot) -> dict[str, Any]:
    """Return a figure's named traces; of several of one name the last."""
    return {trace["name"]: trace for trace in figure_of(plot)["data"] if "name" in trace}
