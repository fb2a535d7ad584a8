"""What the machine does to a search: a full disk, a clock that is set, a figure that is none. Nothing is lost."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from harness.store import TrialRecord, read_trials
from tests.support.simulated_search import Clock, Search
from tests.support.trials import measured
from tuning.budget import Budget
from tuning.verdict import Kind

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def search(tmp_path: Path) -> Search:
    """Make an empty study."""
    return Search(tmp_path / "study", Clock())


def test_a_disk_that_is_full_costs_the_running_trial_alone(search: Search) -> None:
    """After room was made the search goes on with the same setting, to its verdict."""

    def full(record: TrialRecord) -> None:
        if record.number == 3:
            (search.root / "trials" / "0003-search" / "trial.json").unlink()
            raise FULL

    search.engine.after_each = full
    with pytest.raises(OSError, match="No space left on device"):
        search.searcher().run()
    assert [record.number for record in read_trials(search.root)] == [0, 1, 2]
    search.go_on()
    verdict = search.searcher().run()
    settings = search.engine.settings("search")
    assert settings[3] == settings[4]
    assert len({setting.key for setting in settings}) == 6
    assert verdict.kind is Kind.BETTER


@pytest.mark.parametrize("jump_s", [-1e9, 1e9])
def test_setting_the_clock_moves_no_budget(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    """Time is counted by a clock that nobody can set."""
    budget = Budget(trials=20, seconds=600.0, confirm_trials=4)
    before_s = budget.left_s
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + jump_s)
    assert before_s - 5 < budget.left_s <= before_s
    assert budget.allows_search_trial(0)


def test_a_p99_that_is_no_number_is_no_measurement(search: Search) -> None:
    """It sorts anywhere, so it must neither win nor be told."""
    search.searcher(trials=3, confirm_rounds=0).run()
    third = search.engine.settings("search")[2]
    other = Search(search.root.parent / "other", search.clock)
    other.engine.answers[third.key].append(measured(third, float("nan")))
    assert not measured(third, float("nan")).usable
    verdict = other.searcher().run()
    assert verdict.winner is not None
    assert third not in other.engine.settings("confirm")
    assert all(best is None or best > 0 for best in other.watch.best)
