"""The plots of whole trials, and all sections together."""

from __future__ import annotations

import pytest

from tests.support.figures import figure_of, traces
from tests.support.rows import trial_row
from tests.support.study_data import ATTACK, OFF, Made
from tuning.objective import read_objective
from tuning.report import plots, study_result
from tuning.report.rows import TrialRow


def test_history_shows_every_trial_once(rows: list[TrialRow]) -> None:
    """Feasible ones, those that break a constraint and those without a P99 are told apart; the best only falls."""
    found = traces(plots.trial_history(rows))
    assert found["search"]["x"] == [0, 1, 2, 6]
    assert found["confirm"]["x"] == list(range(8, 16))
    assert found["breaks a constraint"]["x"] == [4]
    assert sorted(found["nothing to compare"]["x"]) == [3, 5, 7]
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


def test_history_follows_the_objective() -> None:
    """Where more of it is better the best so far only rises, and the axis says what it is; it has no interval."""
    rows = [trial_row(n, OFF, 1.0, value=share) for n, share in enumerate((0.5, 0.9, 0.7))]
    plot = plots.trial_history(rows, read_objective("goodput{ttft=500ms}"))
    found = traces(plot)
    assert found["search"]["y"] == [0.5, 0.9, 0.7]
    assert found["best so far"]["y"] == [0.5, 0.9, 0.9]
    assert figure_of(plot)["layout"]["yaxis"]["title"]["text"] == "goodput{ttft=500ms}"
    assert "interval" not in plot.caption


def test_trials_of_any_purpose_are_drawn(rows: list[TrialRow]) -> None:
    """A purpose that the report does not know has marks of its own, under its name."""
    stress = trial_row(99, OFF, 2.0, purpose="stress")
    found = traces(plots.trial_history([*rows, stress]))
    assert found["stress"]["x"] == [99]
    assert found["stress"]["marker"]["symbol"] == "square"


def test_bars_of_very_many_settings_end(rows: list[TrialRow]) -> None:
    """A hundred bars are no picture; the best are drawn and the caption says so."""
    many = [trial_row(n, OFF, 1.0 + n, device_hit_rate=0.5) for n in range(100)]
    plot = plots.tokens_by_tier(many)
    assert len(traces(plot)["device"]["x"]) == plots.MOST_SETTINGS
    assert plot.caption.startswith(f"The first {plots.MOST_SETTINGS} of 100 settings.")


def test_sections_in_order(confirmed: Made) -> None:
    """What a reader asks first stands first."""
    result = study_result(confirmed.root, confirmed.study, confirmed.records, confirmed.verdict, confirmed.objective)
    sections = plots.all_plots(result, [], [], requests=None)
    assert [section.title for section in sections] == [
        "Latency", "The search", "What decides", "What it is paid with", "Memory and reloads",
    ]  # fmt: skip


def test_plots_without_data_say_why(infeasible: Made) -> None:
    """Nothing measured is no figure and one line for each, never an empty frame."""
    result = study_result(
        infeasible.root, infeasible.study, infeasible.records, infeasible.verdict, infeasible.objective
    )
    made = [plot for section in plots.all_plots(result, [], [], requests=None) for plot in section.plots]
    assert len(made) == 9
    assert all(plot.figure_json is None and plot.missing for plot in made)
