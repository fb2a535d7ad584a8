"""Draws stay inside what the file says, and follow its shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from scenarios.distributions import Choice, Constant, Counts, Distribution, Lognormal, Seconds, Uniform

ANY: TypeAdapter[Constant | Uniform | Lognormal | Choice] = TypeAdapter(Distribution)
COUNTS: TypeAdapter[Constant | Uniform | Lognormal | Choice] = TypeAdapter(Counts)
SECONDS: TypeAdapter[Constant | Uniform | Lognormal | Choice] = TypeAdapter(Seconds)

seeds = st.integers(0, 2**32)


def test_number_is_a_constant() -> None:
    """A bare number in the file means the constant."""
    assert ANY.validate_python(6) == Constant(kind="constant", value=6)
    assert ANY.validate_python(6).draw_whole(np.random.default_rng(0)) == 6


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(0, 1000), seeds)
def test_uniform_stays_inside(low: int, extra: int, seed: int) -> None:
    """Uniform draws lie between both ends, whole ones too."""
    shape = Uniform(kind="uniform", min=low, max=low + extra)
    rng = np.random.default_rng(seed)
    assert low <= shape.draw(rng) <= low + extra
    assert low <= shape.draw_whole(rng) <= low + extra


def test_uniform_whole_numbers_are_equally_likely() -> None:
    """The ends are as likely as the middle, which rounding a float would halve."""
    rng = np.random.default_rng(1)
    shape = Uniform(kind="uniform", min=1, max=4)
    counts = np.bincount([shape.draw_whole(rng) for _ in range(8000)], minlength=5)
    assert counts[0] == 0
    assert all(abs(count - 2000) < 200 for count in counts[1:])


@settings(deadline=None)
@given(st.floats(0.5, 1e5), st.floats(0, 3), seeds)
def test_lognormal_is_clipped(median: float, sigma: float, seed: int) -> None:
    """Lognormal draws never leave min..max, however wide the spread."""
    shape = Lognormal(kind="lognormal", median=median, sigma=sigma, min=median / 2, max=median * 2)
    assert median / 2 <= shape.draw(np.random.default_rng(seed)) <= median * 2


def test_lognormal_has_its_median() -> None:
    """Half of the draws are below the median, and the spread of the logarithm is sigma."""
    rng = np.random.default_rng(2)
    draws = np.array([Lognormal(kind="lognormal", median=100, sigma=0.7).draw(rng) for _ in range(20000)])
    assert np.median(draws) == pytest.approx(100, rel=0.03)
    assert np.log(draws).std() == pytest.approx(0.7, rel=0.03)


def test_lognormal_counts_are_at_least_one() -> None:
    """A lognormal without a minimum still gives no empty message."""
    rng = np.random.default_rng(3)
    shape = Lognormal(kind="lognormal", median=0.6, sigma=1.5)
    assert min(shape.draw_whole(rng) for _ in range(200)) == 1


def test_choice_follows_weights() -> None:
    """Values come up in proportion to their weights; weight 0 never."""
    rng = np.random.default_rng(4)
    shape = Choice(kind="choice", values=(1, 2, 3), weights=(1, 0, 3))
    draws = [shape.draw(rng) for _ in range(4000)]
    assert set(draws) == {1.0, 3.0}
    assert draws.count(3.0) == pytest.approx(3000, abs=150)


def test_choice_without_weights_takes_all_values() -> None:
    """Without weights all values come up."""
    rng = np.random.default_rng(5)
    assert {Choice(kind="choice", values=(4, 9)).draw(rng) for _ in range(50)} == {4.0, 9.0}


@pytest.mark.parametrize(
    ("adapter", "data", "message"),
    [
        (ANY, {"kind": "uniform", "min": 5, "max": 2}, "min 5 is above max 2"),
        (ANY, {"kind": "lognormal", "median": 5, "sigma": 1, "min": 9}, "min 9 is above the median 5"),
        (ANY, {"kind": "lognormal", "median": 5, "sigma": 1, "max": 2}, "max 2 is below the median 5"),
        (ANY, {"kind": "lognormal", "median": 0, "sigma": 1}, "greater than 0"),
        (ANY, {"kind": "lognormal", "median": 1, "sigma": -1}, "greater than or equal to 0"),
        (ANY, {"kind": "choice", "values": []}, "at least 1 item"),
        (ANY, {"kind": "choice", "values": [1, 2], "weights": [1]}, "1 weights for 2 values"),
        (ANY, {"kind": "choice", "values": [1, 2], "weights": [0, 0]}, "the weights are all 0"),
        (ANY, {"kind": "constant", "value": float("inf")}, "finite number"),
        (ANY, {"kind": "constant", "value": "6"}, "valid number"),
        (ANY, "six", "needs a number or a distribution such as {kind: uniform, min: 4, max: 12}"),
        (ANY, True, "needs a number or a distribution"),
        (COUNTS, 0, "can be 0, must be at least 1"),
        (COUNTS, {"kind": "choice", "values": [0, 3]}, "can be 0, must be at least 1"),
        (COUNTS, {"kind": "uniform", "min": 0.4, "max": 3}, "can be 0.4, must be at least 1"),
        (SECONDS, -1, "can be -1 seconds, must not be negative"),
    ],
)
def test_impossible_shapes_are_refused(adapter: TypeAdapter[object], data: object, message: str) -> None:
    """A shape that cannot be drawn from, or draws what cannot be, is refused with the reason."""
    with pytest.raises(ValidationError, match=r".") as caught:
        adapter.validate_python(data)
    assert message in caught.value.errors()[0]["msg"]
