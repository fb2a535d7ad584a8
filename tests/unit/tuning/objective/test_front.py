"""Settings that trade goals against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.memory import SeenMemory
from harness.engine.setting import Setting
from harness.store import TrialRecord
from tests.support.trials import failed, measured, not_sustainable
from tuning.objective import Constraint, Objective, front, read_metric

OBJECTIVE = Objective(
    (Constraint.parse("errors <= 1%"),), 600.0, pareto=(read_metric("host_memory"), read_metric("throughput"))
)


def trial(number: int, p99_s: float, gib: float, tokens_per_s: float = 100.0, **changes: Any) -> TrialRecord:
    """Make a search trial of a setting of its own."""
    record = measured(Setting(hicache=True, hicache_ratio=1.5 + number), p99_s, number=number, **changes)
    assert record.summary is not None
    summary = record.summary.model_copy(update={"output_tokens_per_s": tokens_per_s})
    return record.model_copy(update={"seen": SeenMemory(host_pool_bytes=round(gib * 2**30)), "summary": summary})


def numbers(records: Sequence[TrialRecord]) -> list[int]:
    """List the numbers of the trials on the front."""
    return [record.number for record in front(records, OBJECTIVE)]


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([], []),
        ([failed(Setting(hicache=True)), not_sustainable(Setting(hicache=True))], []),
        ([trial(0, 1.0, 4), trial(1, 0.5, 8)], [1, 0]),
        ([trial(0, 1.0, 4), trial(1, 0.5, 4)], [1]),
        ([trial(0, 1.0, 4), trial(1, 0.5, 4, 90.0)], [1, 0]),
        ([trial(0, 1.0, 4), trial(1, 1.0, 4)], [0, 1]),
        ([trial(0, 1.0, 4), trial(1, 0.5, 4, error_rate=0.5)], [0]),
    ],
)
def test_the_front_is_what_no_other_setting_beats_in_everything(records: list[TrialRecord], wanted: list[int]) -> None:
    """More throughput is better, less of the others; equal ones both stay; what breaks a bound is out."""
    assert numbers(records) == wanted


def test_the_front_is_of_the_search_alone() -> None:
    """A confirmation played other sessions, which may have been easier."""
    assert numbers([trial(0, 1.0, 4), trial(1, 0.1, 1).model_copy(update={"purpose": "confirm"})]) == [0]


def test_of_a_setting_that_was_tried_again_the_last_trial_counts() -> None:
    """As it was the second try."""
    again = trial(0, 1.2, 4).model_copy(update={"number": 5})
    assert numbers([trial(0, 1.0, 4), again]) == [5]


def test_one_goal_has_the_best_as_its_front() -> None:
    """Without --pareto there is nothing to trade."""
    alone = Objective((), 600.0)
    assert [record.number for record in front([trial(0, 1.0, 4), trial(1, 0.5, 8)], alone)] == [1]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=12))
def test_nobody_on_the_front_is_beaten_and_everybody_else_is(rows: list[tuple[int, int, int]]) -> None:
    """By the definition, pair by pair."""
    records = [trial(number, p99, gib, rate) for number, (p99, gib, rate) in enumerate(rows)]
    on_front = set(numbers(records))

    def beats(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
        mine, theirs = (one[0], one[1], -one[2]), (other[0], other[1], -other[2])
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    for number, row in enumerate(rows):
        assert (number in on_front) is not any(beats(other, row) for other in rows)
