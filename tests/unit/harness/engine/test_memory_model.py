"""Predictions that learn from how far they were off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.memory_model import Corrected, MemoryModel

GB = 10**9


def test_nothing_seen_yet() -> None:
    """The formula stands, with a wide error."""
    assert MemoryModel().correct(30 * GB) == Corrected(30 * GB, 3 * GB)
    assert MemoryModel().trials == 0


def test_one_trial_moves_the_next_prediction() -> None:
    """What the formula left out is added, and the error shrinks."""
    model = MemoryModel([(30 * GB, 32 * GB)])
    corrected = model.correct(40 * GB)
    assert corrected.value_bytes == 42 * GB
    assert corrected.error_bytes == 2_100_000_000


def test_what_is_missing_each_time_is_a_constant() -> None:
    """A context of 2 GB is no factor: a small prediction is not scaled down."""
    model = MemoryModel([(x * GB, x * GB + 2 * GB) for x in (10, 20, 40)])
    assert model.correct(80 * GB).value_bytes == 82 * GB
    assert model.correct(80 * GB).error_bytes == 820_000_000


def test_what_is_wrong_for_each_token_is_a_factor() -> None:
    """A pool that is a tenth larger each time is so for the next one too."""
    model = MemoryModel([(x * GB, round(1.1 * x * GB)) for x in (10, 20, 40)])
    assert model.correct(80 * GB).value_bytes == 88 * GB


def test_one_odd_trial_changes_the_error_and_not_the_value() -> None:
    """The median stays; the widest miss is told."""
    model = MemoryModel([(10 * GB, 11 * GB), (20 * GB, 21 * GB), (30 * GB, 31 * GB), (40 * GB, 90 * GB)])
    corrected = model.correct(50 * GB)
    assert corrected.value_bytes == 51 * GB
    assert corrected.error_bytes >= 49 * GB
    assert corrected.least_bytes < 50 * GB < corrected.most_bytes


@pytest.mark.parametrize("pair", [(0, 5), (5, 0), (-1, 5), (5, -1)])
def test_what_is_not_positive_says_nothing(pair: tuple[int, int]) -> None:
    """A trial without a reading is no lesson."""
    model = MemoryModel([pair])
    model.learn(*pair)
    assert model.trials == 0


@given(st.lists(st.tuples(st.integers(1, 10**12), st.integers(1, 10**12)), max_size=12), st.integers(0, 10**12))
def test_any_history_gives_a_usable_answer(pairs: list[tuple[int, int]], predicted: int) -> None:
    """Never negative, and the bounds hold the value."""
    corrected = MemoryModel(pairs).correct(predicted)
    assert 0 <= corrected.least_bytes <= corrected.value_bytes <= corrected.most_bytes


@given(st.lists(st.integers(10**9, 10**11), min_size=2, max_size=8), st.floats(0.5, 2), st.integers(10**9, 10**11))
def test_a_law_is_found(sizes: list[int], factor: float, predicted: int) -> None:
    """When reality follows the formula by a factor, the next prediction is right within its error and rounding."""
    model = MemoryModel([(size, round(factor * size)) for size in sizes])
    corrected = model.correct(predicted)
    rounding = 1e-6 * factor * predicted  # of sizes that lie a byte apart, drawn out to the prediction
    assert (
        corrected.least_bytes - rounding <= factor * predicted <= corrected.most_bytes + rounding or len(set(sizes)) < 2
    )
