"""The plot of the load over time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.support.study_data import EDGE_SESSIONS, SESSIONS, TURNS, Made
from tuning.report.figure import Plot
from tuning.report.played import requests
from tuning.report.timeline import MOST_POINTS, thinned, ttft_over_time


@pytest.fixture(scope="module")
def plot(confirmed: Made) -> Plot:
    """Draw the first trial of a study."""
    return ttft_over_time(requests(confirmed.root, confirmed.records))


def figure(plot: Plot) -> Any:
    """Read a figure."""
    assert plot.figure_json is not None, plot.missing
    return json.loads(plot.figure_json)


def test_every_answered_request_is_drawn_first_turns_apart(plot: Plot) -> None:
    """Warm-up and fillers too: the plot shows what the steady window leaves out."""
    drawn = {trace["name"]: len(trace["x"]) for trace in figure(plot)["data"]}
    sessions = SESSIONS + 2 * EDGE_SESSIONS
    assert drawn == {"later turns": sessions * (TURNS - 1), "first turns": sessions}


def test_the_steady_window_is_shaded(plot: Plot) -> None:
    """From the first counted request to the last counted reply, and the caption says why."""
    (shade,) = figure(plot)["layout"]["shapes"]
    assert shade["x0"] == EDGE_SESSIONS * 1.4
    assert shade["x1"] > shade["x0"] + SESSIONS * 1.4
    assert "first counted request" in plot.caption


def test_nothing_to_draw_says_why(infeasible: Made) -> None:
    """No requests on disk is a sentence, not an empty frame."""
    assert "no requests" in ttft_over_time(requests(infeasible.root, infeasible.records)).missing


def test_a_long_load_is_thinned_but_keeps_its_slowest() -> None:
    """A page stays small, and what a P99 is about is on it."""
    took_s = np.random.default_rng(1).lognormal(0, 1, 50_000)
    kept = thinned(took_s)
    assert len(kept) <= MOST_POINTS
    assert set(np.argsort(took_s)[-100:]) <= set(kept)
    assert thinned(took_s[:9]).tolist() == list(range(9))
