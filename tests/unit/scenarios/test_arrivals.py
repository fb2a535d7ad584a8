"""Arrivals have the rate and the shape that they promise, and only closer together at another rate."""

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import stats

from scenarios.arrivals import Arrivals

POISSON = {"kind": "poisson", "rate_per_s": 4.0}
GAMMA = {"kind": "gamma", "rate_per_s": 4.0, "cv": 2.5}
RAMP = {"kind": "ramp", "from_per_s": 0.0, "to_per_s": 8.0, "over_s": 300.0}
SPIKES = {"kind": "spikes", "rate_per_s": 4.0, "every_s": 60.0, "spike_s": 6.0, "factor": 10.0}
RECORDED = {"kind": "recorded", "times_s": [0.0, 1.0, 1.5, 4.0]}


def _process(data: dict[str, Any]) -> Arrivals:
    process: Arrivals = TypeAdapter(Arrivals).validate_python(data)
    return process


def _times(data: dict[str, Any], number: int, seed: int = 1) -> list[float]:
    return list(islice(_process(data).times(np.random.default_rng(seed)), number))


@pytest.mark.parametrize(("data", "cv"), [(POISSON, 1.0), (GAMMA, 2.5)])
def test_gaps_have_the_mean_and_the_spread(data: dict[str, Any], cv: float) -> None:
    """Over 40,000 arrivals, mean and coefficient of variation of the gaps are as asked, within their noise."""
    gaps = np.diff(_times(data, 40_000))
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_poisson_gaps_are_exponential() -> None:
    """The gaps pass a Kolmogorov-Smirnov test against the exponential distribution."""
    gaps = np.diff(_times(POISSON, 5_000))
    assert stats.kstest(gaps, "expon", args=(0, 0.25)).pvalue > 0.01


def test_a_ramp_reaches_its_rate() -> None:
    """From 0 to 8 a second in 300 s: a quarter arrives in the first half, then 8 a second."""
    times = np.array(_times(RAMP, 12_000))
    assert np.sum(times < 150) == pytest.approx(300, rel=0.15)
    assert np.sum(times < 300) == pytest.approx(1200, rel=0.1)
    assert np.sum((times >= 300) & (times < 1300)) == pytest.approx(8000, rel=0.05)


@pytest.mark.parametrize("ends", [(6.0, 2.0), (3.0, 3.0)])
def test_a_ramp_may_fall_or_be_flat(ends: tuple[float, float]) -> None:
    """The rate may fall, or stay; the ramp holds its mean rate times its length."""
    times = np.array(_times({**RAMP, "from_per_s": ends[0], "to_per_s": ends[1]}, 3_000))
    assert np.sum(times < 300) == pytest.approx(sum(ends) / 2 * 300, rel=0.1)


def test_spikes_are_where_they_should_be() -> None:
    """The last 6 of 60 s have ten times the calm rate, and the mean over both is the rate."""
    times = np.array(_times(SPIKES, 24_000))
    in_spike = times % 60 >= 54
    assert len(times) / times[-1] == pytest.approx(4, rel=0.05)
    assert (in_spike.mean() / 6) / ((1 - in_spike.mean()) / 54) == pytest.approx(10, rel=0.05)


def test_recorded_times_are_played_as_they_are() -> None:
    """Nothing is drawn, and the process ends."""
    assert _times(RECORDED, 10) == [0.0, 1.0, 1.5, 4.0]


@pytest.mark.parametrize("data", [POISSON, GAMMA, RAMP, SPIKES, RECORDED], ids=lambda data: data["kind"])
@given(rate=st.floats(0.01, 1000), seed=st.integers(0, 1000))
def test_another_rate_keeps_the_pattern(data: dict[str, Any], rate: float, seed: int) -> None:
    """The rate asked for is exactly the process's own, times stay in order, and more rate means earlier arrivals."""
    process = _process(data)
    other = process.at_rate(rate)
    assert other.mean_per_s == rate
    one, two = ([*islice(p.times(np.random.default_rng(seed)), 50)] for p in (process, other))
    assert len(one) == len(two)
    assert all(a <= b for a, b in pairwise(two))
    assert all(a >= b if rate >= process.mean_per_s else a <= b for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("data", [POISSON, GAMMA, RECORDED], ids=lambda data: data["kind"])
def test_twice_the_rate_is_half_the_time(data: dict[str, Any]) -> None:
    """Where the rate is constant, the same arrivals come in exactly half the time."""
    process = _process(data)
    once, twice = (
        [*islice(p.times(np.random.default_rng(3)), 20)] for p in (process, process.at_rate(2 * process.mean_per_s))
    )
    assert twice == pytest.approx([at_s / 2 for at_s in once])
