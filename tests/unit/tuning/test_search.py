"""A search from its baselines to its verdict, over an engine that is simulated by a function of the setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from harness.engine.failure import FailureKind
from harness.engine.memory import SeenMemory
from harness.engine.setting import Setting
from harness.errors import EngineError
from harness.lab import Lab
from harness.store import TrialRecord, read_trials
from scenarios.errors import ConfigError
from tests.support.recordings import case_folder, expected
from tests.support.simulated import TRIAL_S, p99_s
from tests.support.simulated_search import OBJECTIVE, SEED, Clock, Search, clock_of_trials
from tests.support.trials import failed, interrupted, invalid, measured
from tuning.confirm import CONFIRM_SEED_OFFSET
from tuning.space import Ranges
from tuning.study import BASELINES
from tuning.verdict import Kind

OFF, ON = BASELINES
FRESH = (SEED + CONFIRM_SEED_OFFSET, SEED + CONFIRM_SEED_OFFSET + 1)
SMALL = Ranges(hicache="on", hicache_ratio="3,4").space()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put a clock that the trials move in place of the budget's."""
    return clock_of_trials(monkeypatch)


@pytest.fixture
def search(tmp_path: Path, clock: Clock) -> Search:
    """Make an empty study."""
    return Search(tmp_path / "study", clock)


def test_a_search_is_baselines_then_proposals_then_the_confirmation(search: Search) -> None:
    """The best are measured again beside both baselines, in turn, reversed in odd rounds, on fresh seeds."""
    verdict = search.searcher().run()
    asked = search.engine.asked
    assert [setting for _, setting, _ in asked[:2]] == [OFF, ON]
    assert [(purpose, seed) for purpose, _, seed in asked[:6]] == [("search", SEED)] * 6
    best, second = sorted(search.engine.settings("search")[2:], key=p99_s)[:2]
    confirmation = [OFF, ON, best, second]
    assert asked[6:] == [
        *(("confirm", setting, FRESH[0]) for setting in confirmation),
        *(("confirm", setting, FRESH[1]) for setting in reversed(confirmation)),
    ]
    assert verdict.kind is Kind.BETTER
    assert verdict.winner is not None
    assert verdict.winner.key == best.key


def test_every_trial_is_on_disk_in_order(search: Search) -> None:
    """The records of the searcher are those that a later reader finds."""
    searcher = search.searcher()
    searcher.run()
    assert [record.number for record in searcher.records] == list(range(14))
    assert read_trials(search.root) == searcher.records


def test_a_search_is_shown_as_it_goes(search: Search) -> None:
    """What is searched counts up, what is left goes down to the last trial, and the best only gets better."""
    search.searcher().run()
    assert [measured for measured, _ in search.watch.begun] == [0, 1, 2, 3, 4, 5, *[6] * 8]
    etas = [eta_s for _, eta_s in search.watch.begun]
    assert etas[1:] == [TRIAL_S * left for left in range(13, 0, -1)]
    best = [p99 for p99 in search.watch.best if p99 is not None]
    assert best == sorted(best, reverse=True)


@pytest.mark.parametrize(
    ("spoilt", "tries"),
    [
        (failed(ON, FailureKind.HANG), 2),
        (failed(ON, FailureKind.CRASH), 2),
        (invalid(ON), 2),
        (failed(ON, FailureKind.HOST_MEMORY_REFUSED), 1),
        (measured(ON, 0.5, error_rate=0.9), 1),
    ],
)
def test_what_the_machine_spoilt_is_tried_once_more(search: Search, spoilt: TrialRecord, tries: int) -> None:
    """A hang, a crash or a client that was late may be chance; what the setting itself did is information."""
    search.engine.answers[ON.key].append(spoilt)
    search.searcher(confirm_rounds=0).run()
    assert search.engine.settings("search").count(ON) == tries
    assert len(set(map(str, search.engine.settings("search")))) == 6


def test_a_setting_that_the_machine_spoils_twice_is_let_go(search: Search) -> None:
    """Nothing is retried for ever (design rule 9): the second failure counts, and the search goes on."""
    search.searcher(trials=3, confirm_rounds=0).run()
    third = search.engine.settings("search")[2]
    other = Search(search.root.parent / "other", search.clock)
    other.engine.answers[third.key].extend([failed(third, FailureKind.HANG)] * 5)
    searcher = other.searcher(confirm_rounds=0)
    searcher.run()
    assert other.engine.settings("search").count(third) == 2
    assert len(set(map(str, other.engine.settings("search")))) == 6
    trials = optuna.load_study(study_name="hicache-tune", storage=f"sqlite:///{other.root / 'study.db'}").trials
    assert trials[0].value == OBJECTIVE.worst_s


def test_a_client_that_is_always_the_bottleneck_ends_the_search(search: Search) -> None:
    """Invalid trials take their time like others, so they count towards the number of trials."""
    space = Ranges(hicache_ratio="1.5:6:0.5").space()
    for setting in [OFF, ON, *(Setting(hicache=True, hicache_ratio=n / 2).canonical() for n in range(3, 13))]:
        search.engine.answers[setting.key].extend([invalid(setting)] * 9)
    verdict = search.searcher(space=space, trials=4).run()
    assert len(search.engine.asked) == 8
    assert verdict.kind is Kind.UNCONFIRMED
    assert "the client was the bottleneck" in verdict.sentence


def test_a_stop_ends_the_search_between_trials_and_a_resume_goes_on(search: Search) -> None:
    """Nothing is measured twice, and the whole is as long as an undisturbed search."""
    search.stop_after(3)
    assert search.searcher().run().kind is Kind.UNCONFIRMED
    assert len(search.engine.asked) == 3
    search.go_on()
    search.stop_after(5)
    search.searcher().run()
    assert len(search.engine.asked) == 8
    search.go_on()
    assert search.searcher().run().kind is Kind.BETTER
    assert len(search.engine.asked) == len(set(map(str, search.engine.asked))) == 14


def test_a_finished_study_is_only_decided_again(search: Search) -> None:
    """A resume of what is complete launches nothing and says the same."""
    first = search.searcher().run()
    asked = len(search.engine.asked)
    assert search.searcher().run() == first
    assert len(search.engine.asked) == asked


def test_a_resume_with_more_trials_searches_on(search: Search) -> None:
    """The effort may grow; what was measured stays."""
    search.searcher().run()
    search.searcher(trials=8).run()
    assert len(search.engine.settings("search")) == len(set(map(str, search.engine.settings("search")))) == 8


def test_an_interrupted_trial_is_not_charged_and_comes_again(search: Search) -> None:
    """Its setting is the first that the resume measures."""
    search.searcher(trials=3, confirm_rounds=0).run()
    third = search.engine.settings("search")[2]
    other = Search(search.root.parent / "other", search.clock)
    other.engine.answers[third.key].append(interrupted(third))
    other.stop_after(3)
    other.searcher(confirm_rounds=0).run()
    other.go_on()
    other.searcher(confirm_rounds=0).run()
    assert other.engine.settings("search")[2:4] == [third, third]
    assert len(other.engine.settings("search")) == 7


def test_a_confirmation_that_was_cut_off_or_invalid_is_measured_again_after_a_resume(search: Search) -> None:
    """What says nothing does not stand for a confirmation."""
    search.searcher(trials=2, confirm_rounds=0).run()
    search.engine.answers[OFF.key].extend([invalid(OFF), invalid(OFF)])
    search.engine.answers[ON.key].append(interrupted(ON))
    search.stop_after(3)
    search.searcher(trials=2, confirm_rounds=1).run()
    assert search.engine.settings("confirm") == [OFF, OFF, ON]
    search.go_on()
    search.searcher(trials=2, confirm_rounds=1).run()
    assert search.engine.settings("confirm")[3:] == [OFF, ON]


def test_a_crash_between_measurement_and_tell_costs_no_launch(search: Search) -> None:
    """The record is on disk before Optuna hears of it, so the next life only tells it."""

    def crash(record: TrialRecord) -> None:
        if len(search.engine.asked) == 3:
            raise RuntimeError

    search.engine.after_each = crash
    with pytest.raises(RuntimeError):
        search.searcher().run()
    search.go_on()
    search.searcher().run()
    assert len(search.engine.asked) == len(set(map(str, search.engine.asked))) == 14


def test_case_57_the_crashed_trial_is_not_charged(search: Search) -> None:
    """Of a budget of 20 with 9 done, 11 are left after the crash in the tenth (case 57)."""
    story = json.loads((case_folder(57) / "trials.json").read_text())
    search.searcher(trials=story["complete"], confirm_rounds=0).run()

    crashed: list[Setting] = []

    def crashing(lab: Lab, *, setting: Setting, **_: Any) -> TrialRecord:
        crashed.append(setting)
        raise RuntimeError

    searcher = search.searcher(trials=story["budget"], confirm_rounds=0)
    searcher.measure = crashing
    with pytest.raises(RuntimeError):
        searcher.run()
    (search.root / "running.json").write_text(json.dumps({"pid": 777, "started": 1.0, "boot": "an earlier one"}))
    search.searcher(trials=story["budget"], confirm_rounds=0).run()
    assert len(search.engine.asked) - story["complete"] == expected(57)["budget_left"]
    assert search.engine.settings("search")[story["complete"]] == crashed[0]
    trials = optuna.load_study(study_name="hicache-tune", storage=f"sqlite:///{search.root / 'study.db'}").trials
    assert TrialState.RUNNING not in {trial.state for trial in trials}
    assert not (search.root / "running.json").exists()


def test_a_budget_that_ends_in_the_confirmation_leaves_it_unconfirmed(search: Search) -> None:
    """The search leaves time for what a confirmation should take; when that takes longer, nothing is claimed."""
    search.engine.trial_s["confirm"] = 500.0
    verdict = search.searcher(trials=50, budget_s=600.0).run()
    assert len(search.engine.settings("search")) == 11
    assert search.engine.settings("confirm") == [OFF]
    assert verdict.kind is Kind.UNCONFIRMED


def test_the_end_of_a_budget_is_used_for_what_still_fits(search: Search) -> None:
    """A slow baseline that no longer fits does not take the last minute from a quick candidate."""
    search.engine.slower_s[OFF.key] = 300.0
    search.searcher(trials=4, confirm_rounds=0).run()
    search.searcher(trials=4, confirm_rounds=1, budget_s=3.5 * TRIAL_S).run()
    confirmed = search.engine.settings("confirm")
    assert OFF not in confirmed
    assert len(confirmed) == 3


def test_a_budget_is_kept_to(search: Search) -> None:
    """Search and confirmation together take no longer than they may."""
    verdict = search.searcher(trials=50, budget_s=500.0).run()
    assert len(search.engine.asked) * TRIAL_S <= 500
    assert len(search.engine.settings("confirm")) == 8
    assert verdict.kind is Kind.BETTER


def test_a_resume_knows_what_a_trial_costs(search: Search) -> None:
    """With too little time for a search trial beside the confirmation, none is begun on a guess."""
    search.searcher(trials=3, confirm_rounds=0).run()
    search.searcher(trials=50, budget_s=8.5 * TRIAL_S).run()
    assert len(search.engine.settings("search")) == 3
    assert len(search.engine.settings("confirm")) == 6


def test_a_space_that_is_used_up_goes_on_to_the_confirmation(search: Search) -> None:
    """Two settings beside the baselines are all there is."""
    verdict = search.searcher(space=SMALL, trials=50).run()
    assert len(search.engine.settings("search")) == 4
    assert verdict.kind is Kind.BETTER


def test_nothing_feasible_is_not_measured_again(search: Search) -> None:
    """There is no winner to prove."""
    for setting in (OFF, ON, *(Setting(hicache=True, hicache_ratio=ratio).canonical() for ratio in (3, 4))):
        search.engine.answers[setting.key].append(failed(setting))
    verdict = search.searcher(space=SMALL).run()
    assert search.engine.settings("confirm") == []
    assert verdict.kind is Kind.NONE_FEASIBLE


def test_a_second_search_of_the_study_is_refused(search: Search) -> None:
    """Two engines on one machine would measure each other."""
    refusals = []

    def second(record: TrialRecord) -> None:
        search.go_on()
        with pytest.raises(ConfigError) as refusal:
            search.searcher().run()
        refusals.append(str(refusal.value))

    search.engine.after_each = second
    search.searcher(trials=2, confirm_rounds=0).run()
    assert refusals == [
        f"another hicache-tune works on the study in {search.root}; wait for it or choose another --study"
    ]
    search.searcher(trials=2, confirm_rounds=0).run()


def test_a_second_search_on_the_same_devices_is_refused(search: Search, tmp_path: Path) -> None:
    """Another study on the same devices would be disturbed, and would disturb."""
    refusals: list[str] = []

    def second(record: TrialRecord) -> None:
        other = Search(tmp_path / f"another-{len(refusals)}", search.clock)
        with pytest.raises(ConfigError) as refusal:
            other.searcher().run()
        refusals.append(str(refusal.value))

    search.engine.after_each = second
    search.searcher(trials=2, confirm_rounds=0).run()
    assert set(refusals) == {
        "another hicache-tune measures on cuda of this machine; wait for it, as both would be disturbed"
    }


def test_a_crash_of_hicache_alone_leaves_the_rest_to_be_searched(search: Search) -> None:
    """What the machine does to HiCache at its defaults says nothing of SGLang without it."""
    search.engine.answers[ON.key].extend([failed(ON, FailureKind.CRASH)] * 2)
    search.searcher(trials=4, confirm_rounds=0).run()
    assert len({setting.key for setting in search.engine.settings("search")}) == 4


@pytest.mark.parametrize(("kind", "tries"), [(FailureKind.BAD_FLAG, 1), (FailureKind.CRASH, 2)])
def test_a_default_that_cannot_start_stops_the_search_with_the_engines_words(
    search: Search, kind: FailureKind, tries: int
) -> None:
    """No setting can mend it; once the user has, the resume begins with it again."""
    search.engine.answers[OFF.key].extend([failed(OFF, kind)] * tries)
    with pytest.raises(EngineError) as problem:
        search.searcher().run()
    assert f"the engine failed with {kind.value}" in str(problem.value)
    assert "first of the last lines\n  last of the last lines" in str(problem.value)
    assert search.engine.settings("search") == [OFF] * tries
    search.searcher().run()
    assert search.engine.settings("search")[tries:][:2] == [OFF, ON]


def test_a_default_that_a_setting_can_mend_does_not_stop_the_search(search: Search) -> None:
    """Too small a fraction by default is what a search is for."""
    search.engine.answers[OFF.key].append(failed(OFF, FailureKind.KV_POOL_TOO_SMALL))
    search.searcher(confirm_rounds=0).run()
    assert len(search.engine.settings("search")) == 6


def test_memory_is_learned_for_the_preflight(search: Search) -> None:
    """What the trials took is known to the next preflight, and again after a resume."""
    search.engine.seen = SeenMemory(device_pool_bytes=1000)
    searcher = search.searcher(trials=2, confirm_rounds=0)
    searcher.run()
    assert searcher.lab.learned.largest_pool_bytes == 1000
    resumed = search.searcher(trials=2, confirm_rounds=0)
    resumed.run()
    assert resumed.lab.learned.largest_pool_bytes == 1000
