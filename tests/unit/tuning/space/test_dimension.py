"""One dimension: its values, its conditions, and what Optuna is asked for."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tuning.space import WITH_HICACHE, Condition, Dimension

FILE = Condition(name="hicache-storage-backend", values=("file", "mooncake"))


@pytest.mark.parametrize(
    ("dimension", "ends"),
    [
        (Dimension(name="a", choices=("x", "y")), ("x", "y")),
        (Dimension(name="a", low=1, high=9, step=2), (1, 9)),
        (Dimension(name="a", low=0.5, high=1.5, step=0.5), (0.5, 1.5)),
    ],
)
def test_the_ends_of_a_dimension(dimension: Dimension, ends: tuple[Any, ...]) -> None:
    """Every choice, or both ends of a range, whole where the range is."""
    assert dimension.ends == ends
    assert [type(end) for end in dimension.ends] == [type(end) for end in ends]


@pytest.mark.parametrize(
    ("dimension", "grid"),
    [
        (Dimension(name="a", choices=("x", 1)), ("x", 1)),
        (Dimension(name="a", low=1, high=9, step=4), (1, 5, 9)),
        (Dimension(name="a", low=0.7, high=0.9, step=0.1), (0.7, 0.8, 0.9)),
        (Dimension(name="a", low=8, high=50, log=True), (8, 16, 32, 50)),
        (Dimension(name="a", low=0.5, high=2, log=True), (0.5, 1.0, 2.0)),
        (Dimension(name="a", low=3, high=3, log=True), (3,)),
    ],
)
def test_the_grid_of_a_dimension(dimension: Dimension, grid: tuple[Any, ...]) -> None:
    """Every value in order, of a logarithmic scale each doubling."""
    assert dimension.grid == grid
    assert [type(value) for value in dimension.grid] == [type(value) for value in grid]


@given(low=st.floats(1e-3, 1e3), times=st.floats(1, 1e4), seed=st.integers(0, 2**32 - 1))
def test_a_value_of_a_logarithmic_scale_is_short_and_in_it(low: float, times: float, seed: int) -> None:
    """Four digits are as good as sixteen, read well, and do not leave the range."""
    dimension = Dimension(name="a", low=low, high=low * times, log=True)
    value = dimension.suggest(optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed)).ask())
    assert isinstance(value, int | float)
    assert low <= value <= low * times
    assert value in (low, low * times) or float(f"{value:.4g}") == value or isinstance(value, int)


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ((), "x,y"),
        ((WITH_HICACHE,), "x,y (with HiCache)"),
        ((WITH_HICACHE, FILE), "x,y (with HiCache, when hicache-storage-backend is file or mooncake)"),
        ((Condition(name="a", values=(True,)),), "x,y (when a is on)"),
    ],
)
def test_conditions_are_said_in_words(when: tuple[Condition, ...], text: str) -> None:
    """As a person would read them."""
    assert Dimension(name="b", choices=("x", "y"), when=when).text == text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "give either choices or low, high and step"),
        ({"low": 1, "high": 2}, "give either choices or low, high and step"),
        ({"choices": (1,), "low": 1}, "give either choices or a range"),
        ({"choices": (1,), "log": True}, "give either choices or a range"),
        ({"low": 1, "high": 2, "step": 1, "log": True}, "a logarithmic scale begins above 0 and has no step"),
        ({"low": 0, "high": 2, "log": True}, "a logarithmic scale begins above 0 and has no step"),
        ({"low": 3, "high": 2, "log": True}, "3:2:log is empty"),
    ],
)
def test_a_dimension_that_is_no_whole_is_refused(values: dict[str, Any], said: str) -> None:
    """Choices or a range, and a range that has values."""
    with pytest.raises(ValidationError, match=said):
        Dimension(name="a", **values)


def test_the_condition_of_an_older_study_is_read() -> None:
    """A study.json of before named HiCache as the only condition that there was."""
    old = {"name": "a", "choices": ["x"], "low": None, "high": None, "step": None}
    assert Dimension.model_validate(old | {"needs_hicache": True}).when == (WITH_HICACHE,)
    assert Dimension.model_validate(old | {"needs_hicache": False}).when == ()
