"""What a night means: slower, noise, or nothing to say; and how often that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.setting import Setting
from harness.statistics import Floats
from tests.support.trials import base_ttft_s, measured
from tuning.nightly.conditions import Difference, cause_of
from tuning.nightly.history import NightRecord
from tuning.nightly.judge import Reference, Run, beats, change_since, judge, needs_repeat

SETTING = Setting(hicache=True).canonical()
GOOD_NIGHT = NightRecord(job="chat", study="chat-1", started_at=datetime(2026, 11, 1, tzinfo=UTC))
THRESHOLD = 0.1


def answers(ttft_s: Floats, seed: int = 1) -> pd.DataFrame:
    """Make the answers of a load: sessions by turns."""
    rows = [(f"{seed}/s{session}", turn, seconds) for (session, turn), seconds in np.ndenumerate(ttft_s)]
    return pd.DataFrame(rows, columns=["session", "turn", "ttft_s"])


def run(factor: float | Floats = 1.0, *, falls_short: str = "") -> Run:
    """Make a run that took `factor` times as long as the good night."""
    return Run(SETTING, (measured(SETTING),), answers(base_ttft_s(1) * factor), falls_short)


def reference(*differences: Difference, same_sessions: bool = True) -> Reference:
    """Make the good night."""
    return Reference(GOOD_NIGHT, answers(base_ttft_s(1)), differences, same_sessions)


@given(st.floats(0.5, 1.09))
def test_what_is_not_slower_than_the_threshold_is_good_at_once(factor: float) -> None:
    """Nothing is measured again."""
    assert not needs_repeat(run(factor), reference(), THRESHOLD)
    assert judge(run(factor), None, reference(), THRESHOLD).outcome == "good"


@given(st.floats(1.11, 5.0), st.floats(1.11, 5.0))
def test_what_is_slower_twice_is_a_regression_by_the_repeat(first: float, again: float) -> None:
    """The figure is the repeat's: the first was picked for being slow."""
    assert needs_repeat(run(first), reference(), THRESHOLD)
    found = judge(run(first), run(again), reference(), THRESHOLD)
    assert (found.outcome, found.cause) == ("regression", "conditions")
    assert found.change is not None
    assert found.change.ratio == pytest.approx(again - 1)


def test_an_interval_that_reaches_below_the_threshold_is_noise() -> None:
    """A few slow sessions make a P99, and prove nothing."""
    factors = np.ones((40, 1))
    factors[np.argsort(base_ttft_s(1).max(axis=1))[-2:]] = 2.0
    found = judge(run(factors), run(factors), reference(), THRESHOLD)
    assert found.change is not None
    assert found.change.ratio > THRESHOLD
    assert (found.outcome, found.cause) == ("good", "noise")


def test_without_a_repeat_there_is_no_verdict() -> None:
    """The budget had ended; no data is no pass, and no regression."""
    found = judge(run(2.0), None, reference(), THRESHOLD)
    assert (found.outcome, found.cause) == ("no data", None)
    assert "the budget ended before it was measured again" in found.sentence


def test_what_does_not_sustain_the_load_is_a_regression_once_a_repeat_shows_it() -> None:
    """And noise when the repeat does not."""
    short = run(falls_short="time to first token only grew")
    assert judge(short, short, reference(), THRESHOLD).outcome == "regression"
    assert judge(short, run(), reference(), THRESHOLD).cause == "noise"


def test_without_a_good_night_the_night_is_as_good_as_its_setting() -> None:
    """There is nothing to compare with."""
    assert judge(run(9.0), None, None, THRESHOLD).outcome == "good"
    assert judge(run(falls_short="breaks errors <= 1%"), None, None, THRESHOLD).outcome == "failed"


def test_two_loads_of_one_engine_are_rarely_a_regression() -> None:
    """Requests that are each up to 30 % faster or slower by chance: of 200 nights fewer than one in a hundred."""
    rng = np.random.default_rng(5)

    def chance() -> Run:
        return run(rng.lognormal(0, 0.1, (40, 6)))

    outcomes = [judge(chance(), chance(), reference(), THRESHOLD).outcome for _ in range(200)]
    assert outcomes.count("regression") < 2


def test_different_sessions_are_compared_as_a_whole() -> None:
    """The interval is wide, as nothing is taken out of it, and holds the truth."""
    other = Run(SETTING, (measured(SETTING),), answers(base_ttft_s(7) * 2.0, seed=7), "")
    found = change_since(other.answers, reference(same_sessions=False))
    paired = change_since(run(2.0).answers, reference())
    assert found is not None
    assert paired is not None
    assert found.interval is not None
    assert paired.interval is not None
    assert 1.0 in found.interval
    assert found.interval.high - found.interval.low > 10 * (paired.interval.high - paired.interval.low)


def test_the_cause_is_the_first_of_what_has_changed() -> None:
    """All differences are in the sentence, as they cannot be told apart."""
    changes = [Difference("conditions", "gpu was A, is B"), Difference("engine version", "sglang was 1, is 2")]
    found = judge(run(2.0), run(2.0), reference(*changes), THRESHOLD)
    assert found.cause == "engine version"
    assert "likely cause: engine version (gpu was A, is B; sglang was 1, is 2)" in found.sentence
    assert cause_of([]) == "conditions"


def test_a_setting_beats_production_only_when_its_whole_interval_does() -> None:
    """A tie is no proposal, nor is a setting that breaks a constraint."""
    assert beats(run(0.8), run(), 0.02) is not None
    assert beats(run(0.99), run(), 0.02) is None
    assert beats(run(0.5, falls_short="breaks errors <= 1%"), run(), 0.02) is None
