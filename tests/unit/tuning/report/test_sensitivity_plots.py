"""The plots of what decides."""

from __future__ import annotations

from tests.support.figures import figure_of, traces
from tests.support.study_data import ATTACK
from tuning.report.sensitivity import Importance, Point, Sensitivity, Slice
from tuning.report.sensitivity_plots import importance_plot, slice_plots

FOUND = Sensitivity(
    trials=24,
    best=6,
    importance=(
        Importance(flag="page_size", share=0.7, by_chance=0.4),
        Importance(flag=ATTACK, share=0.3, by_chance=0.5),
    ),
)


def point(
    value: float | str | bool, trial: int, p99_s: float | None, *, feasible: bool = True, alone: bool = False
) -> Point:
    """Make one setting of a slice."""
    return Point(value=value, trial=trial, p99_s=p99_s, feasible=feasible, alone=alone)


def test_importance_stands_beside_chance() -> None:
    """The largest bar is on top, in colour when it beats chance; the caption names the flags that do."""
    plot = importance_plot(FOUND)
    bars = traces(plot)["importance"]
    assert bars["x"] == [0.3, 0.7]
    assert len(set(bars["marker"]["color"])) == 2
    assert traces(plot)["by chance, one time in twenty"]["x"] == [0.5, 0.4]
    assert "the best 6 of 24 searched settings" in plot.caption
    assert "page_size stands out" in plot.caption
    assert ATTACK not in bars["y"][0]


def test_no_importance_says_why() -> None:
    """Too few trials are a sentence."""
    assert importance_plot(Sensitivity(why_none="too few")).missing == "too few"


def test_a_slice_of_numbers_has_a_line_through_what_differs_alone() -> None:
    """All settings are marked, those that may not win apart; the line is one flag alone."""
    points = (
        point(2.0, 0, 1.0, alone=True),
        point(3.0, 1, 4.0, feasible=False),
        point(4.0, 2, 2.0, alone=True),
        point(5.0, 3, None, feasible=False, alone=True),
    )
    (plot,) = slice_plots(Sensitivity(slices=(Slice(flag="hicache_ratio", points=points),)))
    found = traces(plot)
    assert found["feasible"]["x"] == [2.0, 4.0]
    assert found["breaks a constraint"]["x"] == [3.0]
    assert found["no P99 to compare"]["x"] == [5.0]
    assert found["no P99 to compare"]["y"][0] > 4.0, "above all that was measured"
    assert (found["this flag alone"]["x"], found["this flag alone"]["y"]) == ([2.0, 4.0], [1.0, 2.0])
    assert plot.small


def test_a_slice_of_words_has_one_place_for_each() -> None:
    """Words, and switches, are categories in their order; markup in them is text."""
    (plot,) = slice_plots(Sensitivity(slices=(Slice(flag="x", points=(point(ATTACK, 0, 1.0), point("fcfs", 1, 2.0))),)))
    axis = figure_of(plot)["layout"]["xaxis"]
    assert (axis["type"], len(axis["categoryarray"])) == ("category", 2)
    assert plot.figure_json is not None
    assert "script>alert" not in plot.figure_json
    (switch,) = slice_plots(Sensitivity(slices=(Slice(flag="hicache", points=(point(False, 0, 1.0),)),)))
    assert figure_of(switch)["layout"]["xaxis"]["categoryarray"] == ["off"]


def test_a_flag_without_a_p99_has_no_plot() -> None:
    """When every setting of a flag failed there is nothing to mark."""
    for points in ((), (point(1, 0, None, feasible=False),)):
        assert slice_plots(Sensitivity(slices=(Slice(flag="x", points=points),))) == []
