"""An engine that serves two settings, on the real engine: what it is given while it runs takes effect."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from harness.engine.setting import Setting
from harness.load.record import read_records
from harness.store import Outcome, TrialRecord, requests_path
from harness.trial import run_trial
from scenarios.plan import Phase, Plan, Session, Turn
from tests.support.cpu_lab import StepWatch, cpu_lab
from tests.support.loads import plan_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]


def batch_of(requests: int) -> Setting:
    """Bound the requests that run at a time."""
    return Setting(hicache=True, extra={"pp-max-micro-batch-size": requests})


def plan() -> Plan:
    """Make a load of six sessions at a time, whose replies are long enough to overlap."""
    turns = [Turn(think_s=0.0, max_output_tokens=40, text=f"{name} asks something " * 40) for name in "abcdef"]
    return plan_of(*(Session(f"s{number}", Phase.COUNTED, (turn, turn)) for number, turn in enumerate(turns)))


def overlaps(root: Path, record: TrialRecord) -> int:
    """Count the replies that began before an earlier one had ended."""
    requests = read_records(requests_path(root, record))
    replies = sorted(zip(requests["first_token_ns"], requests["last_token_ns"], strict=True))
    return sum(following[0] < reply[1] for reply, following in pairwise(replies))


def test_a_change_takes_effect_without_a_relaunch(tmp_path: Path) -> None:
    """SGLang tells the new value, no more requests than that run, and nothing is found from the trial before."""
    lab = cpu_lab(tmp_path, StepWatch())
    lab.followed_by = batch_of(1)
    wide = run_trial(lab, number=0, purpose="search", setting=batch_of(8), plan=plan())
    lab.followed_by = None
    narrow = run_trial(lab, number=1, purpose="search", setting=batch_of(1), plan=plan())
    assert (wide.outcome, narrow.outcome) == (Outcome.MEASURED, Outcome.MEASURED), (wide.reason, narrow.reason)
    assert (wide.relaunched, narrow.relaunched) == (True, False)
    assert narrow.effective is not None
    assert narrow.effective.mismatches == ()
    assert narrow.hygiene.first_request_cached_tokens == 0
    assert overlaps(tmp_path, wide) > 0
    assert overlaps(tmp_path, narrow) == 0
    assert narrow.hygiene.stop is not None
    assert narrow.hygiene.stop.clean
