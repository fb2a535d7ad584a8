"""The plots of the report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.statistics import quantile
from tests.support.study_data import ATTACK, RATIO_3, Made
from tuning.report import plots
from tuning.report.rows import TrialRow, trial_rows
from tuning.report.figure import Plot
from tuning.report.played import Played, played, samples


@pytest.fixture(scope="module")
def rows(confirmed: Made) -> list[TrialRow]:
    """Give the rows of a study that ends well."""
    return trial_rows(confirmed.records, confirmed.objective, confirmed.verdict)


@pytest.fixture(scope="module")
def settings(confirmed: Made) -> list[Played]:
    """Give both baselines and the winner of that study."""
    return played(confirmed.root, confirmed.records, RATIO_3.key, confirmed=True)


def traces(plot: Plot) -> dict[str, Any]:
    """Return a figure's named traces."""
    assert plot.figure_json is not None, plot.missing
    return {trace["name"]: trace for trace in json.loads(plot.figure_json)["data"] if "name" in trace}


def test_distribution_ends_at_all_requests(settings: list[Played]) -> None:
    """Each curve rises to 100 % at its slowest request, and a mark stands at the P99 of the raw values."""
    plot = plots.ttft_distribution(settings)
    winner = settings[-1].requests["ttft_s"].to_numpy(dtype=np.float64)
    curve = traces(plot)["winner"]
    assert (curve["y"][-1], curve["x"][-1]) == (1.0, winner.max())
    assert curve["x"] == sorted(curve["x"])
    assert plot.figure_json is not None
    marks = [trace["x"][0] for trace in json.loads(plot.figure_json)["data"] if trace.get("mode") == "markers"]
    assert quantile(winner, 0.99) in marks


def test_distribution_of_very_many_requests_keeps_the_tail(settings: list[Played]) -> None:
    """A long load is thinned out, but every one of its slowest requests is drawn."""
    took_ns = np.linspace(0.1, 5.0, 20_000) * 1e9
    frame = pd.DataFrame({"status": "ok", "turn": 0, "scheduled_ns": 0, "first_token_ns": took_ns.astype(np.int64)})
    curve = traces(plots.ttft_distribution([replace(settings[-1], counted=frame)]))["winner"]
    assert len(curve["x"]) < 1000
    assert curve["x"][-50:] == (frame["first_token_ns"] / 1e9).tolist()[-50:]


def test_a_p99_that_may_not_be_compared_is_not_marked(unsustained: Made) -> None:
    """The curve of a load that was not sustained says so and has no mark."""
    both = played(unsustained.root, unsustained.records, RATIO_3.key, confirmed=True)
    plot = plots.ttft_distribution(both)
    assert "HiCache off (not sustained)" in traces(plot)
    assert plot.figure_json is not None
    assert plot.figure_json.count('"mode":"markers"') == 1


def test_history_shows_every_trial_once(rows: list[TrialRow]) -> None:
    """Feasible ones, those that break a constraint and those without a P99 are told apart; the best only falls."""
    found = traces(plots.trial_history(rows))
    assert found["search"]["x"] == [0, 1, 2, 6]
    assert found["confirm"]["x"] == list(range(8, 16))
    assert found["breaks a constraint"]["x"] == [4]
    assert sorted(found["no P99 to compare"]["x"]) == [3, 5, 7]
    best = found["best so far"]["y"]
    assert best == sorted(best, reverse=True)


def test_history_intervals_reach_from_low_to_high(rows: list[TrialRow]) -> None:
    """Error bars are distances from the P99, not bounds."""
    found = traces(plots.trial_history(rows))["search"]
    latency = next(row.ttft for row in rows if row.number == found["x"][0])
    assert latency is not None
    assert latency.p99_low_s is not None
    assert latency.p99_high_s is not None
    assert found["y"][0] - found["error_y"]["arrayminus"][0] == pytest.approx(latency.p99_low_s)
    assert found["y"][0] + found["error_y"]["array"][0] == pytest.approx(latency.p99_high_s)


def test_host_pool_of_hicache_off_is_zero(rows: list[TrialRow]) -> None:
    """Settings without HiCache stand at zero host tokens."""
    found = traces(plots.p99_by_host_pool(rows))
    assert set(found["HiCache off"]["x"]) == {0}
    assert set(found["HiCache on"]["x"]) == {12_288, 18_432, 36_864}


def test_tiers_and_what_was_recomputed_make_a_whole(rows: list[TrialRow]) -> None:
    """The shares of each setting add up to all of its prompt tokens."""
    found = traces(plots.tokens_by_tier(rows))
    totals = [sum(shares) for shares in zip(*(trace["x"] for trace in found.values()), strict=True)]
    assert totals == pytest.approx([1.0] * len(totals))
    assert list(found) == ["device", "host", "recomputed"]


def test_labels_lose_their_markup(rows: list[TrialRow]) -> None:
    """plotly reads a part of HTML in labels, so they come escaped."""
    for plot in (plots.tokens_by_tier(rows), plots.trial_history(rows)):
        assert plot.figure_json is not None
        assert ATTACK not in plot.figure_json
        assert "&lt;script&gt;" in plot.figure_json.replace("\\u003c", "<").replace("\\u003e", ">").replace(
            "\\u0026", "&"
        )


def test_memory_has_a_panel_for_each_thing_that_was_seen(confirmed: Made, settings: list[Played]) -> None:
    """Device memory is left out on a machine without a device; host memory is in GiB."""
    found = traces(plots.memory_and_queue(samples(confirmed.root, settings[-1].records)))
    assert list(found) == ["host", "queued", "host pool"]
    assert found["host"]["y"][0] == 10.0
    assert found["host"]["x"][:2] == [0.0, 2.0]


def test_turns_are_counted_from_one(settings: list[Played]) -> None:
    """Median and P90 are drawn for each turn of each setting."""
    found = traces(plots.ttft_by_turn(settings))
    assert found["winner, P50"]["x"] == [1, 2, 3, 4, 5, 6]
    assert all(p90 > p50 for p50, p90 in zip(found["winner, P50"]["y"], found["winner, P90"]["y"], strict=True))


def test_plots_without_data_say_why(infeasible: Made) -> None:
    """Nothing measured is no figure and one line for each, never an empty frame."""
    rows = trial_rows(infeasible.records, infeasible.objective, infeasible.verdict)
    made = plots.all_plots([], rows, samples=None, requests=None)
    assert len(made) == 7
    assert all(plot.figure_json is None and plot.missing for plot in made)
