"""How TTFT is spread over requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from harness.statistics import quantile
from tests.support.figures import figure_of, traces
from tests.support.study_data import RATIO_3, SESSIONS, Made
from tuning.report.distribution import ttft_by_tier, ttft_by_turn, ttft_distribution
from tuning.report.played import Played, played


def test_distribution_ends_at_all_requests(settings: list[Played]) -> None:
    """Each curve rises to 100 % at its slowest request, and a mark stands at the P99 of the raw values."""
    plot = ttft_distribution(settings)
    winner = settings[-1].requests["ttft_s"].to_numpy(dtype=np.float64)
    curve = traces(plot)["winner"]
    assert (curve["y"][-1], curve["x"][-1]) == (1.0, winner.max())
    assert curve["x"] == sorted(curve["x"])
    marks = [trace["x"][0] for trace in figure_of(plot)["data"] if trace.get("mode") == "markers"]
    assert quantile(winner, 0.99) in marks


def test_distribution_of_very_many_requests_keeps_the_tail(settings: list[Played]) -> None:
    """A long load is thinned out, but every one of its slowest requests is drawn."""
    took_ns = np.linspace(0.1, 5.0, 20_000) * 1e9
    frame = pd.DataFrame({"status": "ok", "turn": 0, "scheduled_ns": 0, "first_token_ns": took_ns.astype(np.int64)})
    curve = traces(ttft_distribution([replace(settings[-1], counted=frame)]))["winner"]
    assert len(curve["x"]) < 1000
    assert curve["x"][-50:] == (frame["first_token_ns"] / 1e9).tolist()[-50:]


def test_a_p99_that_may_not_be_compared_is_not_marked(unsustained: Made) -> None:
    """The curve of a load that was not sustained says so and has no mark, as a whole and by tier."""
    both = played(unsustained.root, unsustained.records, RATIO_3.key, confirmed=True)
    for plot, curves in ((ttft_distribution(both), 1), (ttft_by_tier(both), 2)):
        assert "HiCache off (not sustained)" in traces(plot)
        assert plot.figure_json is not None
        assert plot.figure_json.count('"mode":"markers"') == curves


def test_each_tier_has_its_requests(settings: list[Played]) -> None:
    """First turns found nothing cached, later ones came from the host; together they are all requests."""
    figure = figure_of(ttft_by_tier(settings))
    titles = [figure["layout"][axis]["title"]["text"] for axis in ("yaxis", "yaxis2")]
    assert titles == ["host", "nothing cached"]
    ends = {
        trace["yaxis"]: trace["x"][-1]
        for trace in figure["data"]
        if trace.get("name") == "winner" and trace.get("mode") != "markers"
    }
    took = settings[-1].requests
    assert ends["y"] == took["ttft_s"][took["turn"] > 0].max()
    assert ends["y2"] == took["ttft_s"][took["turn"] == 0].max()
    assert f"nothing cached: {2 * SESSIONS} with HiCache off" in ttft_by_tier(settings).caption


def test_an_engine_that_does_not_tell_tiers_has_no_such_plot(settings: list[Played]) -> None:
    """Unknown is no tier."""
    silent = settings[-1].counted.copy()
    silent.loc[:, ["cached_tokens", "device_cached_tokens", "host_cached_tokens", "storage_cached_tokens"]] = pd.NA
    plot = ttft_by_tier([replace(settings[-1], counted=silent)])
    assert plot.missing == "the engine did not say from which tier prompts were served"


def test_turns_are_counted_from_one(settings: list[Played]) -> None:
    """Median and P90 are drawn for each turn of each setting."""
    found = traces(ttft_by_turn(settings))
    assert found["winner, P50"]["x"] == [1, 2, 3, 4, 5, 6]
    assert all(p90 > p50 for p50, p90 in zip(found["winner, P50"]["y"], found["winner, P90"]["y"], strict=True))
