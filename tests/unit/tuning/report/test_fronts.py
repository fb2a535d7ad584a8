"""What a lower TTFT P99 is paid with."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.engine.setting import Setting
from tests.support.rows import trial_row
from tests.support.study_data import OFF, ON
from tuning.report.fronts import Front, fronts
from tuning.report.rows import TrialRow

SMALL = st.integers(min_value=1, max_value=6)


def hicache_rows(figures: Sequence[tuple[int, int]], **more: float) -> list[TrialRow]:
    """Make settings with HiCache, each with a host pool and a P99."""
    return [
        trial_row(
            number, Setting(hicache=True, hicache_size=pool).canonical(), float(p99), host_pool_bytes=pool, **more
        )
        for number, (pool, p99) in enumerate(figures)
    ]


def of(rows: Sequence[TrialRow], goal: str) -> Front:
    """Find the front of one goal."""
    return next(front for front in fronts(rows) if front.goal == goal)


@given(st.lists(st.tuples(SMALL, SMALL), min_size=2, max_size=20).filter(lambda f: len({pool for pool, _ in f}) > 1))
def test_the_front_is_what_nothing_beats(figures: list[tuple[int, int]]) -> None:
    """A setting is on the front exactly when no other one is as good in both and better in one."""
    front = of(hicache_rows(figures), "host memory")
    for place in front.places:
        pool, p99 = figures[place.trial]
        beaten = any(a <= pool and b <= p99 and (a, b) != (pool, p99) for a, b in figures)
        assert place.on_front is not beaten


def test_more_throughput_is_better() -> None:
    """Of two with an equal P99 the faster one is ahead, and the best stands first."""
    rows = [trial_row(n, ON, 1.0, output_tokens_per_s=rate) for n, rate in enumerate((50.0, 90.0))]
    assert [(place.value, place.on_front) for place in of(rows, "throughput").places] == [(90.0, True), (50.0, False)]


def test_hicache_off_takes_no_host_memory() -> None:
    """It has no pool and reloads nothing, which is a figure and not an unknown."""
    rows = [trial_row(9, OFF, 9.0), *hicache_rows([(5, 1)], reload_bytes=7)]
    assert [place.trial for place in of(rows, "host memory").places if place.on_front] == [9, 0]
    assert of(rows, "reloads").places[0].value == 0


def test_older_records_are_compared_in_tokens() -> None:
    """Where one trial does not know its bytes, all are compared in what all know."""
    rows = [
        trial_row(0, ON, 1.0, host_pool_tokens=10, host_pool_bytes=640),
        trial_row(1, Setting(hicache=True, hicache_size=9).canonical(), 2.0, host_pool_tokens=20),
    ]
    front = of(rows, "host memory")
    assert (front.unit, [place.value for place in front.places]) == ("tokens", [10, 20])


def test_bytes_are_shown_in_gib() -> None:
    """People read gibibytes, programs bytes."""
    front = of(hicache_rows([(2**31, 1), (2**30, 2)]), "host memory")
    assert [(place.value, front.shown(place)) for place in front.places] == [(2**30, 1.0), (2**31, 2.0)]
    assert (front.unit, front.shown_unit) == ("bytes", "GiB")


def test_only_feasible_trials_of_the_search_are_compared() -> None:
    """A confirmation played other sessions, and what may not win is no choice."""
    rows = [
        trial_row(0, OFF, 3.0, output_tokens_per_s=1.0),
        trial_row(1, ON, 2.0, output_tokens_per_s=2.0),
        trial_row(2, ON, 1.0, output_tokens_per_s=3.0, purpose="confirm"),
        trial_row(3, ON, 1.0, output_tokens_per_s=4.0, feasible=False),
    ]
    assert {place.trial for place in of(rows, "throughput").places} == {0, 1}


def test_a_goal_that_tells_nothing_apart_has_no_front() -> None:
    """Equal figures, unknown ones and no trials at all give none."""
    assert fronts([trial_row(0, ON, 1.0), trial_row(1, ON, 2.0)]) == ()
    assert fronts([]) == ()
