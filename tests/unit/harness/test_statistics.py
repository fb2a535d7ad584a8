"""Quantiles of raw records, and intervals that resample sessions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness import statistics
from harness.statistics import (
    CONFIDENCE,
    RESAMPLES,
    Change,
    Floats,
    Interval,
    Quantile,
    Ratio,
    Sessions,
    compare,
    draws,
    interval_of,
    quantile,
)
from tests.support.recordings import case_folder, expected

QS = (0.5, 0.9, 0.99)
PROMISED = 0.95
"""What an interval says of itself, in every report."""
SAMPLES = st.lists(st.floats(0.001, 1e4), min_size=1, max_size=60)


def make_sessions(rng: np.random.Generator, count: int, turns: int, *, effect_s: Floats | None = None) -> Sessions:
    """Make `count` sessions whose turns share the luck of their session."""
    effects = rng.normal(0, 1, count) if effect_s is None else effect_s
    values = (effects[:, None] + rng.normal(0, 0.5, (count, turns))).ravel()
    return Sessions(10 + values, np.repeat(np.arange(count), turns).astype(object))


def change(baseline: Sessions, candidate: Sessions, q: float) -> Change:
    """Compare one quantile of two sides."""
    return compare(Quantile(baseline, q), Quantile(candidate, q))


@given(SAMPLES)
def test_quantiles_lie_in_order_between_the_extremes(values: list[float]) -> None:
    """min <= p50 <= p90 <= p99 <= max holds for every sample (case 15)."""
    sample = np.array(values)
    ladder = [sample.min(), *(quantile(sample, q) for q in QS), sample.max()]
    assert ladder == sorted(ladder)


def test_case_15_no_p99_beyond_the_largest_sample() -> None:
    """One sample is its own P99, and the P99 of two lies between them (case 15)."""
    samples, wanted = json.loads((case_folder(15) / "ttft_ms.json").read_text()), expected(15)
    assert quantile(np.array(samples["one"]), 0.99) == wanted["one"]["p99"]
    two = quantile(np.array(samples["two"]), 0.99)
    assert wanted["two"]["p99_min"] <= two <= wanted["two"]["p99_max"]


def test_case_49_raw_samples_tell_settings_apart_that_rounding_makes_equal() -> None:
    """The P99s of A and B differ and do not pass A's maximum, though Locust rounds both to 8300 (case 49)."""
    samples, wanted = json.loads((case_folder(49) / "samples_ms.json").read_text()), expected(49)
    a, b = (quantile(np.array(samples[name], dtype=float), 0.99) for name in ("A", "B"))
    assert a <= wanted["a_p99_at_most"]
    assert (a != b) is wanted["a_vs_b_differ"]


@given(SAMPLES, st.floats(0, 1))
def test_a_resample_that_draws_each_session_once_is_the_plain_quantile(values: list[float], q: float) -> None:
    """Weights of one change nothing."""
    sessions = Sessions(np.array(values), np.arange(len(values)).astype(object))
    once = np.ones(len(values), dtype=np.int64)
    assert sessions.quantile(q, once) == pytest.approx(float(np.quantile(values, q)), rel=1e-12)


@given(st.lists(st.tuples(st.floats(0.001, 1e4), st.integers(0, 4)), min_size=5, max_size=60), st.data())
def test_a_weighted_resample_is_the_quantile_of_the_repeated_values(
    rows: list[tuple[float, int]], data: st.DataObject
) -> None:
    """Drawing a session k times gives numpy's quantile of the array that holds its values k times."""
    values, names = np.array([value for value, _ in rows]), np.array([f"s{name}" for _, name in rows], dtype=object)
    sessions = Sessions(values, names)
    count = len(sessions.names)
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count).filter(any))
    times = dict(zip(sessions.names, drawn, strict=True))
    repeated = np.repeat(values, [times[name] for name in names])
    for q in QS:
        found = sessions.quantile(q, np.array(drawn, dtype=np.int64))
        assert found == pytest.approx(float(np.quantile(repeated, q)), rel=1e-12)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Over 120 simulated loads the median's 95 % interval holds the true median as often as the binomial law allows."""
    loads, rng = 120, np.random.default_rng(7)
    covered = 0
    for _ in range(loads):
        interval = make_sessions(rng, 60, 6).interval(0.5)
        assert interval is not None
        covered += 10.0 in interval
    low, high = stats.binom.interval(0.999, loads, PROMISED)
    assert low <= covered <= high


def test_two_loads_of_one_setting_are_rarely_called_different() -> None:
    """The P99's change between equal settings excludes zero no more often than the binomial law allows."""
    loads, rng = 60, np.random.default_rng(2)
    wrong = 0
    for _ in range(loads):
        effects = rng.normal(0, 1, 80)
        one, other = (make_sessions(rng, 80, 6, effect_s=effects) for _ in range(2))
        interval = change(one, other, 0.99).interval
        assert interval is not None
        wrong += 0.0 not in interval
    assert wrong <= stats.binom.ppf(0.999, loads, 1 - PROMISED)


def test_requests_that_share_their_session_give_a_wider_interval() -> None:
    """As many requests say less when they share the luck of their sessions, and the interval shows it."""
    honest = make_sessions(np.random.default_rng(1), 40, 8).interval(0.5)
    narrow = make_sessions(np.random.default_rng(1), 320, 1).interval(0.5)
    assert honest is not None
    assert narrow is not None
    assert honest.high - honest.low > 1.5 * (narrow.high - narrow.low)


def test_one_session_has_no_interval() -> None:
    """A single session says nothing of the spread between sessions."""
    assert Sessions(np.array([1.0, 2.0]), np.array(["a", "a"], dtype=object)).interval(0.99) is None


def test_equal_values_give_an_interval_without_width() -> None:
    """A constant sample is no error and no warning."""
    sessions = Sessions(np.full(6, 2.0), np.array(list("aabbcc"), dtype=object))
    assert sessions.interval(0.99) == Interval(2.0, 2.0)


def test_equal_seeds_give_equal_intervals() -> None:
    """A report that is drawn again shows the same figures."""
    sessions = make_sessions(np.random.default_rng(3), 20, 4)
    assert sessions.interval(0.99) == sessions.interval(0.99)


def test_a_faster_candidate_has_a_negative_change() -> None:
    """Halving every value is -50 %, and doubling it +100 %, whatever is resampled."""
    values, names = np.arange(1.0, 41.0), np.repeat(np.arange(10), 4).astype(object)
    half, whole = Sessions(values / 2, names), Sessions(values, names)
    found = change(whole, half, 0.99)
    interval = found.relative_interval
    assert found.relative == pytest.approx(-0.5)
    assert interval is not None
    assert interval.low == pytest.approx(-0.5)
    assert interval.high == pytest.approx(-0.5)
    assert change(half, whole, 0.99).relative == pytest.approx(1.0)


def test_a_change_over_unequal_sessions_is_refused() -> None:
    """Sides that did not play the same sessions are not compared (design rule 13)."""
    values = np.array([1.0, 2.0])
    mine, theirs = (Sessions(values, np.array(names, dtype=object)) for names in (("a", "b"), ("a", "c")))
    with pytest.raises(ValueError, match="did not play the same sessions"):
        change(mine, theirs, 0.99)


def test_pairing_takes_the_differences_between_sessions_out() -> None:
    """With shared session effects the paired interval is at most half as wide as that of unpaired sessions."""
    effects = np.random.default_rng(5).normal(0, 2, 60)
    rng = np.random.default_rng(6)
    baseline, candidate = (make_sessions(rng, 60, 6, effect_s=effects) for _ in range(2))
    paired = change(baseline, candidate, 0.5).interval
    shuffled = make_sessions(rng, 60, 6, effect_s=rng.permutation(effects))
    unpaired = change(baseline, shuffled, 0.5).interval
    assert paired is not None
    assert unpaired is not None
    assert paired.high - paired.low < 0.5 * (unpaired.high - unpaired.low)


def test_the_interval_is_that_of_scipy() -> None:
    """Our bootstrap is only quicker: scipy, given the plain quantile of repeated values, finds the same bounds."""
    values, names = np.random.default_rng(4).lognormal(0, 1, 120), np.repeat(np.arange(30), 4)

    def p99(drawn: Floats) -> float:
        return quantile(np.concatenate([values[names == name] for name in drawn]), 0.99)

    wanted = stats.bootstrap(
        (np.arange(30),), p99, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile",
        vectorized=False, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    found = Sessions(values, names.astype(object)).interval(0.99)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-12)


@pytest.mark.parametrize("cells", [1, 50, 4_000_000])
def test_how_much_is_held_in_memory_changes_nothing(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resamples are worked on in parts of any size."""
    sessions = make_sessions(np.random.default_rng(8), 30, 6)
    wanted = sessions.interval(0.99)
    monkeypatch.setattr(statistics, "CELLS_AT_ONCE", cells)
    assert sessions.interval(0.99) == wanted


@given(st.integers(2, 12), st.integers(1, 60), st.floats(0, 1), st.integers(0, 99))
def test_a_part_of_the_values_is_enough_for_the_exact_quantile(count: int, size: int, q: float, seed: int) -> None:
    """Even when sessions differ so much that the quantile of a resample lies far from that of all values."""
    rng = np.random.default_rng(seed)
    names = rng.integers(0, count, count * size)
    sessions = Sessions(10.0**names + rng.uniform(0, 1, count * size), names.astype(object))
    drawn = draws(sessions.units, 0)[:9]
    one_by_one = [sessions.quantile(q, row.astype(np.int64)) for row in drawn]
    repeated = [np.repeat(sessions._sorted, row[sessions._unit].astype(np.int64)) for row in drawn]
    assert sessions.resampled(q, drawn).tolist() == one_by_one
    assert one_by_one == pytest.approx([float(np.quantile(values, q)) for values in repeated], rel=1e-9)


def test_very_many_sessions_are_drawn_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of 600 sessions drawn in 200 groups is as wide as that of all of them, within a tenth."""
    values, names = np.random.default_rng(9).lognormal(0, 1, 6000), np.repeat(np.arange(600), 10)
    single = Sessions(values, names).interval(0.5)
    monkeypatch.setattr(statistics, "MOST_UNITS", 200)
    grouped = Sessions(values, names)
    found = grouped.interval(0.5)
    assert (grouped.units, len(grouped.names)) == (200, 600)
    assert single is not None
    assert found is not None
    assert found.high - found.low == pytest.approx(single.high - single.low, rel=0.1)


def test_groups_of_sessions_are_the_same_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison stays paired when sessions are drawn in groups: half of everything is -50 % in every resample."""
    monkeypatch.setattr(statistics, "MOST_UNITS", 10)
    values, names = np.random.default_rng(9).lognormal(0, 1, 400), np.repeat(np.arange(40), 10)
    interval = change(Sessions(values, names), Sessions(values / 2, names), 0.99).interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((-0.5, -0.5))


def test_the_interval_of_a_mean_is_that_of_scipy() -> None:
    """For sessions of equal size it is the plain bootstrap of their means."""
    values, names = np.random.default_rng(4).uniform(0, 1, 120), np.repeat(np.arange(30), 4)
    means = np.array([values[names == name].mean() for name in range(30)])
    wanted = stats.bootstrap(
        (means,), np.mean, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    found = Sessions(values, names).interval_of_mean()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


def test_a_ratio_and_its_interval_are_those_of_scipy() -> None:
    """Answers over seconds, drawn by session: the bootstrap of the ratio of two sums."""
    rng = np.random.default_rng(4)
    parts, wholes = rng.integers(1, 9, 40).astype(float), rng.uniform(1, 30, 40)

    def ratio(drawn: Floats) -> float:
        return float(parts[drawn].sum() / wholes[drawn].sum())

    wanted = stats.bootstrap(
        (np.arange(40),), ratio, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile",
        vectorized=False, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    found = Ratio(parts, wholes, np.arange(40))
    interval = interval_of(found)
    assert interval is not None
    assert found.value() == pytest.approx(parts.sum() / wholes.sum())
    assert (interval.low, interval.high) == pytest.approx((wanted.low, wanted.high), rel=1e-12)


def test_a_ratio_adds_up_the_rows_of_a_session() -> None:
    """One row a request gives what one row a session gives."""
    names = np.array(list("aabbcc"), dtype=object)
    rows = Ratio(np.arange(6.0), np.ones(6), names)
    summed = Ratio(np.array([1.0, 5.0, 9.0]), np.full(3, 2.0), np.array(list("abc"), dtype=object))
    assert (rows.value(), interval_of(rows)) == (summed.value(), interval_of(summed))


def test_a_change_from_zero_is_told_as_a_difference() -> None:
    """A baseline that never meets a level has no share of it; that the other surely does is known all the same."""
    names = np.arange(20)
    found = compare(Ratio(np.zeros(20), np.ones(20), names), Ratio(np.full(20, 0.5), np.ones(20), names))
    assert (found.relative, found.relative_interval) == (None, None)
    assert (found.difference, found.interval) == (0.5, Interval(0.5, 0.5))


def test_a_baseline_that_is_zero_in_one_resample_has_no_relative_interval() -> None:
    """One session of ten meets the level; a resample without it would be divided by zero."""
    names = np.arange(10)
    rare, half = np.eye(10)[0], np.full(10, 0.5)
    found = compare(Ratio(rare, np.ones(10), names), Ratio(half, np.ones(10), names))
    assert found.relative == pytest.approx(4.0)
    assert found.relative_interval is None
    assert found.interval == found.difference_interval


def test_without_a_second_session_no_change_has_an_interval() -> None:
    """The figures differ, and nothing says how surely."""
    one = np.zeros(1)
    found = compare(Ratio(one + 1, one + 2, one), Ratio(one + 2, one + 2, one))
    assert (found.relative, found.interval) == (1.0, None)
