"""Whose requests the plots compare."""

from __future__ import annotations

from pathlib import Path

from harness.store import Outcome
from tests.support.study_data import OFF, ON, RATIO_3, SESSIONS, TURNS, Made, StudyMaker
from tuning.report.played import played, watched


def test_the_confirmation_is_compared(confirmed: Made) -> None:
    """Both rounds of the confirmation count, and nothing of the search."""
    off, on, winner = played(confirmed.root, confirmed.records, RATIO_3.key, confirmed=True)
    assert [setting.role for setting in (off, on, winner)] == ["HiCache off", "HiCache on, defaults", "winner"]
    assert winner.leads
    assert {record.purpose for setting in (off, on, winner) for record in setting.records} == {"confirm"}
    assert len(winner.requests) == 2 * SESSIONS * TURNS


def test_the_search_is_compared_when_nothing_is_confirmed(tmp_path: Path) -> None:
    """Half a confirmation is left out: its sessions are not those of the search."""
    maker = StudyMaker(tmp_path)
    maker.measured(OFF, ttft_s=1.3)
    maker.measured(RATIO_3, ttft_s=0.4)
    maker.measured(OFF, ttft_s=1.3, purpose="confirm", seed=1001)
    off, best = played(tmp_path, maker.records, RATIO_3.key, confirmed=False)
    assert [record.number for record in off.records] == [0]
    assert best.role == "best so far"


def test_a_baseline_that_leads_stands_there_once(tmp_path: Path) -> None:
    """When a baseline wins, its role says so and there is no third setting."""
    maker = StudyMaker(tmp_path)
    maker.confirm([(OFF, 0.4), (ON, 0.4)])
    off, on = played(tmp_path, maker.records, OFF.key, confirmed=True)
    assert (off.role, off.leads, on.leads) == ("HiCache off (winner)", True, False)


def test_a_trial_that_was_tried_again_does_not_count(tmp_path: Path) -> None:
    """An invalid trial and its repetition are not two measurements."""
    maker = StudyMaker(tmp_path)
    maker.measured(OFF, ttft_s=9.0, outcome=Outcome.INVALID, reason="the client was the bottleneck")
    maker.measured(OFF, ttft_s=1.3)
    (off,) = played(tmp_path, maker.records, None, confirmed=False)
    assert off.sustained
    assert [record.number for record in off.records] == [1]


def test_a_load_that_was_not_sustained_is_shown_as_such(unsustained: Made) -> None:
    """Its requests are shown, but its P99 is not to be compared."""
    off, winner = played(unsustained.root, unsustained.records, RATIO_3.key, confirmed=True)
    assert (off.sustained, winner.sustained) == (False, True)


def test_nothing_on_disk_is_nothing_to_compare(infeasible: Made) -> None:
    """Engines that never started left no requests and no samples."""
    assert played(infeasible.root, infeasible.records, None, confirmed=False) == []
    assert watched(infeasible.root, []) == []


def test_a_trial_of_each_setting_is_watched(confirmed: Made) -> None:
    """The first one whose samples are on disk, with all of its requests."""
    seen = watched(confirmed.root, played(confirmed.root, confirmed.records, RATIO_3.key, confirmed=True))
    assert [each.record.number for each in seen] == [8, 9, 10]
    assert all(each.requests is not None and len(each.requests) > SESSIONS * TURNS for each in seen)


def test_each_request_has_the_tier_that_served_it(confirmed: Made) -> None:
    """First turns had nothing cached, and all later ones a part from the host."""
    (off, *_) = played(confirmed.root, confirmed.records, RATIO_3.key, confirmed=True)
    assert set(off.tiers[off.requests["turn"] == 0]) == {"none"}
    assert set(off.tiers[off.requests["turn"] > 0]) == {"host"}
