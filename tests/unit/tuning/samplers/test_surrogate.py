"""What a few measurements say of all settings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statistics import Floats
from tuning.samplers.surrogate import believe, coordinates

PLACES = np.linspace(0, 1, 11)[:, np.newaxis]
FLAT = np.zeros(11)


def test_numbers_stand_evenly_and_words_apart() -> None:
    """A flag that is absent stands in the middle; one that never varies says nothing."""
    rows = [
        {"hicache": False, "size": 16, "word": "a", "fixed": "x"},
        {"hicache": True, "size": 32, "word": "b", "fixed": "x", "ratio": 2.0},
        {"hicache": True, "size": 256, "word": "a", "fixed": "x", "ratio": 6.0},
    ]
    assert coordinates(rows).tolist() == [
        [0, 0, 1, 0, 0.5],
        [1, 0.5, 0, 1, 0],
        [1, 1, 1, 0, 1],
    ]


def test_what_was_measured_is_believed_and_its_neighbours_are_like_it() -> None:
    """The mean follows the values, and what is far from any of them is least certain."""
    belief = believe(PLACES, [0, 1, 2], np.array([0.0, 0.0, 1.0]), line=FLAT)
    assert belief.expected[[0, 1, 2]] == pytest.approx([0.0, 0.0, 1.0], abs=0.25)
    assert belief.expected[3] > 0.4
    spread = np.sqrt(belief.weights @ belief.spread**2)
    assert spread[10] > 2 * spread[1]


def test_values_follow_what_was_expected() -> None:
    """With one measurement the others lie along the line; against clear evidence they do not."""
    line = np.linspace(-1, 1, 11)
    one = believe(PLACES, [5], np.array([0.3]), line=line)
    assert one.expected[0] < 0.3 - 0.8
    assert one.expected[10] > 0.3 + 0.8
    against = believe(PLACES, list(range(11)), -line, line=line)
    assert against.expected == pytest.approx(-line, abs=0.2)


def test_a_known_level_holds_where_nothing_is_near() -> None:
    """Settings that are unlike any that failed are taken to be feasible."""
    alone = believe(PLACES, [10], np.array([1.0]), line=FLAT, level=-1.0).share_below(0.0)
    share = believe(PLACES, [0, 10], np.array([-1.0, 1.0]), line=FLAT, level=-1.0).share_below(0.0)
    assert alone[10] < share[10] + 0.1 < 0.3
    assert alone[0] > 0.5
    assert share[0] > 0.8
    assert np.all(np.diff(share) < 0)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=11), st.floats(-6, 6))
def test_an_improvement_is_never_negative_and_grows_with_the_level(values: list[float], level: float) -> None:
    """Whatever was measured."""
    belief = believe(PLACES, range(len(values)), np.array(values), line=FLAT)
    gains: list[Floats] = [belief.improvement_below(each) for each in (level, level + 1)]
    assert np.all(gains[0] >= -1e-12)
    assert np.all(gains[1] >= gains[0] - 1e-12)


def test_a_space_of_one_setting_has_a_belief() -> None:
    """No flag varies, so there is no coordinate at all."""
    belief = believe(coordinates([{"hicache": True}]), [0], np.array([0.7]), line=np.zeros(1))
    assert belief.expected == pytest.approx([0.7], abs=0.01)
