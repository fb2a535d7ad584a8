"""How much a search may spend, and how it leaves time for the confirmation."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.errors import ConfigError
from tuning.budget import FIRST_GUESS_S, Budget, parse_duration


class Clock:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put a clock that stands still in place of the real one."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def budget(clock: Clock, *, trials: int = 20, seconds: float | None = None, confirm_trials: int = 4) -> Budget:
    """Make a budget that begins now."""
    return Budget(trials, seconds, confirm_trials, started=clock.now_s)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1h1m1s", 3661)]
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    """Hours, minutes and seconds, alone or together."""
    assert parse_duration(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "90", "m", "10x", "1h 30m", "-5m", "1.2.3s", ".s", "5m30", "0s", "0h0m", "1e3s"])
def test_a_duration_that_cannot_be_read_names_its_flag(text: str) -> None:
    """A bare number has no unit to guess, and nothing can be done in no time."""
    with pytest.raises(ConfigError) as refusal:
        parse_duration(text, "--load-limit")
    wanted = f"--load-limit {text}: write a duration above zero, such as 90s, 15m, 2h or 1h30m"
    assert str(refusal.value) == wanted


@given(st.text("0123456789.smh -e", max_size=8))
def test_any_text_is_a_positive_duration_or_a_clear_refusal(text: str) -> None:
    """Nothing that a user can type ends in another error."""
    with suppress(ConfigError):
        assert parse_duration(text, "--budget") > 0


def test_without_a_time_limit_only_trials_count(clock: Clock) -> None:
    """Days later a trial still fits, and none beyond the number."""
    endless = budget(clock, trials=3)
    clock.now_s += 1e6
    assert endless.left_s == float("inf")
    assert endless.allows_search_trial(2)
    assert not endless.allows_search_trial(3)
    assert endless.allows_confirm_trial()


def test_the_search_leaves_time_for_the_confirmation(clock: Clock) -> None:
    """With trials of 30 s and 4 to confirm, a search trial needs 150 s and a confirmation trial 30 s."""
    tight = budget(clock, seconds=600)
    tight.spent(30)
    clock.now_s += 449
    assert tight.allows_search_trial(1)
    clock.now_s += 1
    assert not tight.allows_search_trial(1)
    assert tight.allows_confirm_trial()
    clock.now_s += 121
    assert not tight.allows_confirm_trial()


def test_the_first_trial_is_run_however_short_the_budget(clock: Clock) -> None:
    """Before anything is measured the cost of a trial is a guess, and a guess must not end a search."""
    short = budget(clock, seconds=FIRST_GUESS_S)
    assert short.allows_search_trial(0)
    clock.now_s += FIRST_GUESS_S
    assert not short.allows_search_trial(0)


def test_a_trial_costs_what_the_last_ones_cost(clock: Clock) -> None:
    """The first launch on a machine is slow and is forgotten after five more."""
    learned = budget(clock)
    assert learned.trial_s == FIRST_GUESS_S
    learned.spent(600)
    assert learned.trial_s == 600
    for _ in range(5):
        learned.spent(20)
    assert learned.trial_s == 20


def test_the_eta_counts_search_and_confirmation_down(clock: Clock) -> None:
    """It ends at zero with the last confirmation, and is never beyond the time limit."""
    running = budget(clock, trials=10, confirm_trials=4)
    running.spent(10)
    assert [running.eta_s(measured) for measured in (0, 4, 10, 12)] == [140, 100, 40, 40]
    assert [running.eta_s(10, confirmed) for confirmed in (1, 4, 5)] == [30, 0, 0]
    limited = budget(clock, trials=10, seconds=60)
    limited.spent(10)
    assert limited.eta_s(0) == 60
    clock.now_s += 100
    assert limited.eta_s(0) == 0
