"""What enters no comparison, and why."""

from __future__ import annotations

import pytest

from harness.engine.failure import FailureKind
from harness.engine.setting import Setting
from harness.store import Outcome
from tests.support.rows import trial_row
from tests.support.study_data import OFF, ON, Made
from tests.support.trials import surely_worse
from tuning.report.left_out import left_out
from tuning.report.rows import trial_rows


def test_every_trial_that_may_not_win_is_named_once(confirmed: Made) -> None:
    """Failed, infeasible, invalid and unsustained trials each have their reason and what follows from it."""
    found = left_out(trial_rows(confirmed.records, confirmed.objective, confirmed.verdict))
    assert {each.why: each.trial_numbers for each in found} == {
        "failed: host memory": (3,),
        "breaks `headroom.host >= 1GiB`": (4,),
        "invalid": (5,),
        "not sustainable": (7,),
    }
    meanings = {each.why: each.meaning for each in found}
    assert meanings["not sustainable"].endswith("its P99 is never compared")
    assert meanings["invalid"].startswith("says nothing of the setting")
    examples = {each.why: each.example for each in found}
    assert examples["invalid"].endswith("the client was the bottleneck")
    assert examples["breaks `headroom.host >= 1GiB`"] == "", "the reason is the heading"


def test_the_commonest_reason_stands_first() -> None:
    """Trials of one reason are one line, which counts different settings."""
    failed = {"outcome": Outcome.FAILED, "failure": FailureKind.GPU_OOM_AT_START, "reason": "out of memory"}
    rows = [trial_row(0, OFF, None, outcome=Outcome.INTERRUPTED), *(trial_row(n, ON, None, **failed) for n in (1, 2))]
    first, second = left_out(rows)
    assert (first.why, first.trial_numbers, first.settings) == ("failed: gpu oom", (1, 2), 1)
    assert second.why == "interrupted"


def test_a_load_that_a_race_ended_is_told(confirmed: Made) -> None:
    """It says how far it was behind, and no figure of its half a load is compared."""
    worse = surely_worse(Setting(hicache=True, page_size=64), number=99)
    rows = trial_rows([*confirmed.records, worse], confirmed.objective, confirmed.verdict)
    (row,) = (row for row in rows if row.number == 99)
    assert (row.value, row.ttft, row.requests_per_s, row.output_tokens_per_s) == (None, None, None, None)
    (told,) = (each for each in left_out(rows) if 99 in each.trial_numbers)
    assert (told.why, told.example) == ("surely worse", worse.reason)
    assert told.meaning.endswith("its P99 is never compared")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_follows_is_said_of_every_outcome(outcome: Outcome) -> None:
    """A new outcome must not end a report."""
    (told,) = left_out([trial_row(0, ON, None, outcome=outcome)])
    assert told.meaning


def test_more_load_than_was_asked_for_is_held_against_nobody() -> None:
    """A trial under stress is a caution on the winner, and no reason to leave it out."""
    assert left_out([trial_row(0, ON, None, purpose="stress")]) == ()


def test_feasible_trials_are_not_left_out() -> None:
    """A study in which all went well has no such section."""
    assert left_out([trial_row(0, OFF, 1.0)]) == ()
