"""Memory, queue and reloads over time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.figures import figure_of, traces
from tests.support.study_data import EDGE_SESSIONS, SESSIONS, TURNS, Made
from tuning.report.over_time import memory_and_reloads
from tuning.report.played import Played, Watched, watched


@pytest.fixture
def seen(confirmed: Made, settings: list[Played]) -> list[Watched]:
    """Give a trial of each compared setting."""
    return watched(confirmed.root, settings)


def test_a_panel_for_each_thing_that_was_seen(seen: list[Watched]) -> None:
    """Device memory is left out on a machine without a device; host memory is in GiB."""
    figure = figure_of(memory_and_reloads(seen))
    heads = [axis["title"]["text"] for name, axis in figure["layout"].items() if name.startswith("yaxis")]
    assert heads == ["host GiB free", "queued requests", "tokens in host pool", "tokens reloaded"]
    first = figure["data"][0]
    assert (first["name"], first["x"][:2], first["y"][0]) == ("HiCache off", [0.0, 2.0], 10.0)


def test_every_setting_stands_in_the_legend_once(seen: list[Watched]) -> None:
    """Baselines and winner share the panels and their colours."""
    named = [trace["name"] for trace in figure_of(memory_and_reloads(seen))["data"] if trace["showlegend"]]
    assert named == ["HiCache off", "HiCache on, defaults", "winner"]


def test_reloads_add_up_to_what_the_requests_brought_back(seen: list[Watched]) -> None:
    """The line of the winner ends at the tokens that all of its requests had from the host; off has no such line."""
    found = figure_of(memory_and_reloads(seen))["data"]
    lines = {trace["name"]: trace["y"] for trace in found if trace["yaxis"] == "y4"}
    assert set(lines) == {"HiCache on, defaults", "winner"}
    sessions = SESSIONS + 2 * EDGE_SESSIONS
    assert lines["winner"][-1] == sessions * sum(50 * turn for turn in range(TURNS))
    assert lines["winner"] == sorted(lines["winner"])


def test_requests_that_are_lost_leave_the_other_panels(seen: list[Watched]) -> None:
    """Without requests there are no reloads to show, and memory all the same."""
    found = traces(memory_and_reloads([replace(each, requests=None) for each in seen]))
    assert set(found) == {"HiCache off", "HiCache on, defaults", "winner"}


def test_memory_scales_do_not_magnify_noise(seen: list[Watched]) -> None:
    """A panel of memory spans 1 GiB at least, and shows all that was seen."""
    figure = figure_of(memory_and_reloads(seen))
    low, high = figure["layout"]["yaxis"]["range"]
    assert high - low == pytest.approx(1.1)
    assert low < min(min(trace["y"]) for trace in figure["data"] if trace["yaxis"] == "y")


def test_nothing_on_disk_says_so() -> None:
    """No samples are one line and no frame."""
    assert memory_and_reloads([]).missing == "no samples of the compared settings are on disk"
