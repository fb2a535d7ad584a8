"""The confirmation: who plays how many rounds, in which order, and when the difference is settled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.setting import Setting
from harness.statistics import Change, Interval, Quantile, Sessions, compare
from tests.support.simulated import TRIAL_S
from tests.support.simulated_search import SEED, Clock, Search, clock_of_trials
from tests.support.trials import SESSIONS, TURNS, base_ttft_s, not_sustainable
from tuning.confirm import CONFIRM_SEED_OFFSET, settled
from tuning.space import Ranges
from tuning.study import BASELINES
from tuning.verdict import Kind

OFF, ON = BASELINES
CLOSE = Ranges(hicache="on", hicache_ratio="5.5,6").space()
"""Two settings whose P99 differs by 3 %."""
MOST = 6
FIRST = SEED + CONFIRM_SEED_OFFSET


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put a clock that the trials move in place of the budget's."""
    return clock_of_trials(monkeypatch)


@pytest.fixture
def search(tmp_path: Path, clock: Clock) -> Search:
    """Make an empty study whose requests vary from trial to trial."""
    found = Search(tmp_path / "study", clock)
    found.engine.noise = 0.4
    return found


def confirmed(search: Search) -> list[tuple[Setting, int]]:
    """List what was measured again, with the number of its round."""
    return [(setting, seed - FIRST) for purpose, setting, seed in search.engine.asked if purpose == "confirm"]


def rounds_of(search: Search) -> dict[str, int]:
    """Count the rounds of each setting."""
    return Counter(setting.label for setting, _ in confirmed(search))


def test_what_is_surely_worse_plays_no_more_and_the_baseline_as_long_as_anybody(search: Search) -> None:
    """HiCache at its defaults is out after the two rounds of all; two settings that are close go on to the last."""
    searcher = search.searcher(space=CLOSE, confirm_rounds_most=MOST, confirm_until=0.01)
    verdict = searcher.run()
    played = rounds_of(search)
    best, close = search.engine.settings("search")[2:4]
    assert played == {OFF.label: MOST, ON.label: 2, best.label: MOST, close.label: MOST}
    assert verdict.kind is Kind.BETTER
    assert {c.label: len(c.trial_numbers) for c in verdict.candidates} == played
    assert [c.label for c in verdict.candidates if c.ties_with_best]
    assert not next(c for c in verdict.candidates if c.label == ON.label).ties_with_best


def test_the_order_is_reversed_from_round_to_round(search: Search) -> None:
    """A machine that warms up favours nobody, however many are left."""
    search.searcher(space=CLOSE, confirm_rounds_most=4, confirm_until=0.01).run()
    for number in range(0, 4, 2):
        there = [setting for setting, played in confirmed(search) if played == number]
        back = [setting for setting, played in confirmed(search) if played == number + 1]
        assert [s for s in reversed(there) if s in back] == back


def test_nobody_plays_on_once_the_differences_are_settled(search: Search) -> None:
    """A width of 100 % is narrow enough for anything."""
    search.searcher(space=CLOSE, confirm_rounds_most=MOST, confirm_until=1.0).run()
    assert {played for _, played in confirmed(search)} == {0, 1}


def test_without_further_rounds_asked_for_there_are_none(search: Search) -> None:
    """The confirmation costs what it always has."""
    search.searcher(space=CLOSE, confirm_until=0.001).run()
    assert set(rounds_of(search).values()) == {2}


def test_a_resume_goes_on_in_the_middle_of_a_further_round(search: Search) -> None:
    """Who plays follows from the rounds before, so two lives measure what one would have."""
    effort = {"confirm_rounds_most": 4, "confirm_until": 0.01}
    search.searcher(space=CLOSE, **effort).run()
    other = Search(search.root.parent / "other", search.clock)
    other.engine.noise = search.engine.noise
    for trials in (11, 50):
        other.go_on()
        other.stop_after(trials)
        other.searcher(space=CLOSE, **effort).run()
    assert other.engine.asked == search.engine.asked


def test_the_budget_ends_further_rounds(search: Search) -> None:
    """A round that does not fit whole is the last one."""
    effort = {"confirm_rounds_most": 50, "confirm_until": 0.0001}
    search.searcher(space=CLOSE, budget_s=17.5 * TRIAL_S, **effort).run()
    assert len(search.engine.asked) == 17
    assert max(played for _, played in confirmed(search)) == 3


def test_a_baseline_that_does_not_sustain_the_load_keeps_nobody_playing(search: Search) -> None:
    """There is no ratio to settle; only the settings that tie go on."""
    search.engine.answers[OFF.key].extend([not_sustainable(OFF)] * 9)
    space = Ranges(hicache="on", hicache_ratio="6").space()
    verdict = search.searcher(space=space, confirm_rounds_most=MOST, confirm_until=0.01).run()
    assert set(rounds_of(search).values()) == {2}
    assert verdict.kind is Kind.BASELINE_UNSUSTAINED


@given(st.floats(-0.9, 2.0), st.floats(0.0, 1.0), st.floats(0.01, 0.5))
def test_a_difference_is_settled_when_narrow_or_clear_of_zero(low: float, width: float, until: float) -> None:
    """Clear means that the interval would not reach zero were it three times as wide about its middle."""
    interval = Interval(low, low + width)
    actual = interval.high - interval.low
    clear = 0 not in Interval(interval.low - actual, interval.high + actual)
    assert settled(Change(low, interval, low, interval), until) is (actual <= until or clear)
    assert settled(Change(low, interval, None, None), until) is clear
    assert not settled(Change(low, None, low, None), until)


def test_looking_after_every_round_does_not_make_equal_settings_differ() -> None:
    """Of 200 comparisons of a setting with itself less than 5 % end with an interval that lies below zero."""
    below = sum(_ends_below_zero(comparison) for comparison in range(200))
    assert below < 10


def _ends_below_zero(comparison: int) -> bool:
    """Play rounds of two equal settings until the difference is settled, eight at most; look after each from 2 on."""
    rng = np.random.default_rng(comparison)
    sessions = np.repeat(np.arange(SESSIONS), TURNS)
    names, a, b = [], [], []
    for number in range(8):
        base = base_ttft_s(1000 * comparison + number).ravel()
        names.append([f"{number}/{session}" for session in sessions])
        a.append(base * rng.lognormal(0, 0.3, base.shape))
        b.append(base * rng.lognormal(0, 0.3, base.shape))
        if number == 0:
            continue
        session_of = np.concatenate(names).astype(object)
        change = compare(*(Quantile(Sessions(np.concatenate(side), session_of), 0.99) for side in (a, b)))
        if settled(change, 0.05):
            break
    assert change.relative_interval is not None
    return change.relative_interval.high < 0
