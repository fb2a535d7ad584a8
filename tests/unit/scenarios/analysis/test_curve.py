"""The curve's readings: rates, sizes and the knee."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.analysis.curve import HitCurve


def curve(steps: dict[float, float], prompt_tokens: int = 100) -> HitCurve:
    """Make a curve of steps: size to hit tokens."""
    sizes, hits = np.array([0.0, *steps]), np.array([0.0, *steps.values()])
    return HitCurve(prompt_tokens, sizes, hits, unique_tokens=round(sizes[-1]))


def test_a_cache_hits_from_the_size_of_a_step_on() -> None:
    """One token less than the step misses it."""
    steps = curve({10: 20, 30: 50})
    assert [steps.at(size) for size in (0, 9, 10, 29, 30, 1000)] == [
        0,
        0,
        0.2,
        0.2,
        0.5,
        0.5,
    ]
    assert steps.endless == 0.5
    assert [steps.size_for(rate) for rate in (0.1, 0.2, 0.21, 0.5, 0.9)] == [
        10,
        10,
        30,
        30,
        30,
    ]


def test_the_knee_is_where_a_bent_curve_bends() -> None:
    """Steep up to 40, flat up to 1,000: the knee is at 40."""
    assert curve({10: 15, 20: 30, 30: 45, 40: 60, 500: 65, 1000: 70}).knee() == 40


def test_a_cliff_has_its_knee_at_its_foot() -> None:
    """Users that take turns hit nothing until all of them fit: what is smaller buys nothing."""
    assert curve({10: 30, 700: 31, 990: 34, 1000: 80}).knee(from_tokens=100) == 1000


def test_a_ramp_pays_to_its_end() -> None:
    """A bump of 1 % above the straight line is no bend."""
    assert curve({100: 11, 200: 20, 400: 40, 700: 70, 1000: 100}, prompt_tokens=200).knee() == 1000


def test_the_knee_looks_beyond_what_is_there_already() -> None:
    """A bend within the device pool is of no interest for the host pool."""
    steps = curve({10: 60, 100: 61, 200: 70, 300: 71, 1000: 72})
    assert steps.knee() == 10
    assert steps.knee(from_tokens=100) == 200


def test_without_hits_there_is_no_knee() -> None:
    """A flat curve's knee is where one stands."""
    assert curve({}).knee() == 0
    assert curve({}).knee(from_tokens=50) == 50


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.floats(0, 1000))
def test_the_knee_is_within_the_curve_and_loses_little(gains: list[int], start: float) -> None:
    """Never before the start unless the curve ends there, and never beyond the curve."""
    hits = np.cumsum(gains)
    steps = curve(
        {10.0 * (i + 1): float(h) for i, h in enumerate(hits)},
        prompt_tokens=int(hits[-1]) + 1,
    )
    knee = steps.knee(start)
    assert knee <= max(steps.sizes_tokens[-1], start)
    assert steps.at(knee) >= steps.at(start) or knee == pytest.approx(start)
