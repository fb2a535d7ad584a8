"""Histograms of one window: numeric order, bounds, and no value where there is none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import TelemetryError
from harness.telemetry import MetricsSnapshot
from harness.telemetry.histogram import HistogramWindow
from tests.support.recordings import case_snapshot, expected

NAME = "sglang:load_back_duration_seconds"
BOUNDS = (0.01, 0.1, 1.0, 10.0)


def snapshot(observations: list[float], bounds: tuple[float, ...] = BOUNDS) -> MetricsSnapshot:
    """Write a scrape of one histogram, its buckets in text order as SGLang does."""
    lines = [
        f'{NAME}_bucket{{le="{label}"}} {sum(value <= bound for value in observations)}'
        for label, bound in sorted([("+Inf", math.inf), *((str(bound), bound) for bound in bounds)])
    ]
    lines += [f"{NAME}_sum {math.fsum(observations)}", f"{NAME}_count {len(observations)}"]
    return MetricsSnapshot.parse("\n".join(lines), taken_ns=0)


def test_buckets_in_text_order_give_numeric_bounds() -> None:
    """Case 31: the quantiles lie between the bounds of their buckets."""
    window = HistogramWindow.between(case_snapshot(31, "before.prom"), case_snapshot(31, "after.prom"), NAME)
    wanted = expected(31)["window"]
    assert (window.count, window.total) == (wanted["count"], wanted["sum_s"])
    assert window.mean is not None
    assert window.mean * 1000 == pytest.approx(wanted["mean_ms"])
    for quantile, key in ((0.5, "p50_ms_between"), (0.99, "p99_ms_between")):
        bounds = window.quantile_bounds(quantile)
        assert bounds is not None
        assert [bound * 1000 for bound in bounds] == pytest.approx(wanted[key])


def test_an_idle_window_has_no_values() -> None:
    """Case 31: nothing observed is no data, neither zero nor NaN."""
    after = case_snapshot(31, "after.prom")
    window = HistogramWindow.between(after, after, NAME)
    wanted = expected(31)["idle_window"]
    assert window.count == wanted["count"]
    assert window.quantile_bounds(0.99) is wanted["p99"]
    assert window.mean is wanted["mean"]


def test_a_histogram_that_was_made_inside_the_window_counts_whole() -> None:
    """Before its first observation the engine has no such series."""
    empty = MetricsSnapshot(taken_ns=0)
    assert HistogramWindow.between(empty, snapshot([0.5, 0.6]), NAME).count == 2
    assert HistogramWindow.between(empty, empty, NAME).quantile_bounds(0.5) is None


def test_series_of_several_ranks_add() -> None:
    """Buckets of one bound add over label sets."""
    text = "\n".join(
        f'{NAME}_bucket{{le="{le}",tp_rank="{rank}"}} {n}' for rank in (0, 1) for le, n in (("0.1", 1), ("+Inf", 2))
    )
    text += "\n" + "\n".join(f'{NAME}_count{{tp_rank="{rank}"}} 2' for rank in (0, 1))
    window = HistogramWindow.between(MetricsSnapshot(0), MetricsSnapshot.parse(text), NAME)
    assert window.buckets == ((0.1, 2), (math.inf, 4))
    assert window.count == 4


def test_other_buckets_or_fewer_observations_are_refused() -> None:
    """Two engines with other bucket bounds, or a relaunch, cannot be subtracted."""
    with pytest.raises(TelemetryError, match=r"buckets of .* changed"):
        HistogramWindow.between(snapshot([0.5], bounds=(1.0, 2.0)), snapshot([0.5, 0.6]), NAME)
    with pytest.raises(TelemetryError, match="fell between two scrapes"):
        HistogramWindow.between(snapshot([0.5, 0.6]), snapshot([0.5]), NAME)


DURATIONS = st.lists(st.floats(min_value=1e-6, max_value=100), max_size=60)


@settings(deadline=None)
@given(earlier=DURATIONS, during=DURATIONS, quantile=st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_the_true_quantile_lies_within_the_bounds(earlier: list[float], during: list[float], quantile: float) -> None:
    """The nearest-rank quantile of what was observed in the window is between the bounds; earlier ones are out."""
    window = HistogramWindow.between(snapshot(earlier), snapshot(earlier + during), NAME)
    bounds = window.quantile_bounds(quantile)
    if not during:
        assert bounds is None
        return
    assert bounds is not None
    true = sorted(during)[math.ceil(quantile * len(during)) - 1]
    assert bounds[0] < true <= bounds[1]
