"""What is proposed next and what Optuna is told, over the life of a study with its interruptions."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from harness.engine.failure import FailureKind
from harness.engine.setting import Setting
from harness.errors import StoreError
from harness.store import Outcome, TrialRecord
from tests.support.recordings import case_folder, expected
from tests.support.trials import base_ttft_s, failed, interrupted, invalid, measured, write_requests
from tuning.config import SamplerName
from tuning.objective import LAUNCHED, Constraint, Objective, read_metric
from tuning.samplers import Samplers
from tuning.samplers.points import all_points
from tuning.space import Ranges, Space
from tuning.study import BASELINES, Proposal, Study, first_proposals

ERRORS = "errors <= 1%"
OBJECTIVE = Objective((Constraint.parse(ERRORS),), worst_s=600.0)
WIDE = Ranges(mem_fraction_static="0.70:0.92:0.01", hicache_ratio="1.5:6:0.5").space()
NARROW = Ranges(page_size="16,32", hicache_ratio="2,4").space()
NARROW_SETTINGS = 6
OFF, ON = BASELINES
DONE = [measured(OFF), measured(ON)]


def samplers(space: Space, seed: int = 1, name: SamplerName = "auto") -> Samplers:
    """Make the samplers of a study."""
    return Samplers(name, space, Setting.canonical, seed)


OpenStudy = Callable[..., Study]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the study is kept."""
    return tmp_path / "study.db"


@pytest.fixture
def open_study(path: Path) -> OpenStudy:
    """Open the study as a fresh process would."""

    def opened(space: Space = WIDE, seed: int = 1) -> Study:
        return Study(path, samplers=samplers(space, seed), objective=OBJECTIVE)

    return opened


def told(path: Path) -> list[FrozenTrial]:
    """Read what Optuna has on disk."""
    return optuna.load_study(study_name="hicache-tune", storage=f"sqlite:///{path}").trials


def next_of(study: Study, records: list[TrialRecord]) -> Proposal:
    """Return the next proposal, which there must be."""
    proposal = study.propose(records)
    assert proposal is not None
    return proposal


def search_all(study: Study, records: list[TrialRecord], limit: int) -> list[Setting]:
    """Measure what is proposed until nothing is, or `limit` is reached; returns the settings in order."""
    found: list[Setting] = []
    for number in count(len(records)):
        proposal = study.propose(records) if len(found) < limit else None
        if proposal is None:
            return found
        record = measured(proposal.setting, 1 + number / 10, number=number)
        records.append(record)
        found.append(proposal.setting)
        study.learn(proposal, record)
    raise AssertionError


def test_the_baselines_come_first(open_study: OpenStudy) -> None:
    """Trials 0 and 1 are HiCache off and on at defaults, which Optuna neither asks for nor is told."""
    study, records = open_study(), list[TrialRecord]()
    assert search_all(study, records, 2) == [OFF, ON]
    assert next_of(study, records).setting not in BASELINES


@pytest.mark.parametrize(
    ("record", "again"),
    [
        (interrupted(OFF), True),
        (failed(OFF, FailureKind.MODEL_MISSING), True),
        (failed(OFF, FailureKind.CRASH), True),
        (failed(OFF, FailureKind.KV_POOL_TOO_SMALL), False),
        (invalid(OFF), False),
        (measured(OFF, purpose="confirm"), True),
    ],
)
def test_a_baseline_is_measured_again_when_nothing_is_known_of_it(
    open_study: OpenStudy, record: TrialRecord, again: bool
) -> None:
    """A stop, or a fault that the user has mended since, says nothing; a failure of the setting itself does."""
    assert next_of(open_study(), [record]).setting == (OFF if again else ON)


def test_no_measured_setting_is_proposed_and_the_end_of_the_space_is_seen(open_study: OpenStudy) -> None:
    """Each of the six settings of a small space comes once, then nothing."""
    found = search_all(open_study(NARROW), list(DONE), limit=100)
    assert len(found) == len({setting.key for setting in found}) == NARROW_SETTINGS


def test_a_space_of_the_baselines_alone_is_used_up_at_once(open_study: OpenStudy) -> None:
    """There is nothing to search between off and on."""
    assert open_study(Ranges().space()).propose(DONE) is None


def test_a_confirmation_does_not_stand_for_the_search(open_study: OpenStudy, path: Path) -> None:
    """What was spoilt on another seed later does not hide what the search measured."""
    study = open_study()
    proposal = next_of(study, DONE)
    searched = measured(proposal.setting, 0.6)
    study.learn(proposal, searched)
    optuna.load_study(study_name="hicache-tune", storage=f"sqlite:///{path}").enqueue_trial(told(path)[0].params)
    spoilt = invalid(proposal.setting, purpose="confirm", seed=1001)
    assert next_of(study, [*DONE, searched, spoilt]).setting != proposal.setting
    asked_again = told(path)[1]
    assert (asked_again.state, asked_again.value) == (TrialState.COMPLETE, 0.6)


def test_value_and_constraints_reach_optuna(open_study: OpenStudy, path: Path) -> None:
    """The sampler hears of the P99, and of each bound by its own words."""
    study = open_study()
    proposal = next_of(study, DONE)
    study.learn(proposal, measured(proposal.setting, 0.8, error_rate=0.04))
    (trial,) = told(path)
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.8)
    assert trial.constraints == {LAUNCHED: -1.0, ERRORS: pytest.approx(3.0)}
    assert trial.user_attrs["setting"] == proposal.setting.label


def test_a_failure_is_told_as_infeasible(open_study: OpenStudy, path: Path) -> None:
    """A crash is information: a finite value with the constraint that it breaks (design rule 9)."""
    study = open_study()
    proposal = next_of(study, DONE)
    study.learn(proposal, failed(proposal.setting))
    (trial,) = told(path)
    assert (trial.state, trial.value, trial.constraints) == (TrialState.COMPLETE, 600.0, {LAUNCHED: 1.0})


def test_an_invalid_measurement_teaches_nothing(open_study: OpenStudy, path: Path) -> None:
    """The client was at fault, so there is no value; the setting is not tried a third time either."""
    study = open_study(NARROW)
    proposal = next_of(study, DONE)
    spoilt = invalid(proposal.setting)
    study.learn(proposal, spoilt)
    (trial,) = told(path)
    assert (trial.state, trial.values, trial.constraints) == (TrialState.FAIL, None, {})
    assert proposal.setting not in search_all(study, [*DONE, spoilt], limit=100)


def test_an_interrupted_setting_comes_first_after_the_resume(open_study: OpenStudy, path: Path) -> None:
    """What the user stopped is not lost: it is queued again."""
    study = open_study()
    proposal = next_of(study, DONE)
    stopped = interrupted(proposal.setting)
    study.learn(proposal, stopped)
    resumed = open_study()
    resumed.settle()
    assert next_of(resumed, [*DONE, stopped]).setting == proposal.setting
    assert [trial.state for trial in told(path)] == [TrialState.FAIL, TrialState.RUNNING]


def test_case_57_a_trial_of_a_dead_process_is_failed_and_queued_again(open_study: OpenStudy, path: Path) -> None:
    """After a reboot in trial 9 nothing stays RUNNING, and its parameters are the next proposal (case 57)."""
    story, wanted = json.loads((case_folder(57) / "trials.json").read_text()), expected(57)
    space = Ranges(hicache="on", mem_fraction_static="0.80:0.92:0.02", hicache_ratio="1.5:6:0.5").space()
    study, records = open_study(space), list(DONE)
    search_all(study, records, limit=story["complete"])
    (running,) = story["running"]
    storage = optuna.load_study(study_name="hicache-tune", storage=f"sqlite:///{path}")
    storage.enqueue_trial({"hicache": True, **running["params"]})
    crashed = next_of(study, records)
    assert [trial.state for trial in told(path)][running["n"]] is TrialState.RUNNING

    resumed = open_study(space)
    resumed.settle()
    assert f"marked {told(path)[running['n']].state.name} at resume" in wanted["trial_9"]
    again = next_of(resumed, records)
    assert again.setting == crashed.setting
    assert again.setting.mem_fraction_static == wanted["requeued"]["mem_fraction_static"]
    assert again.setting.hicache_ratio == wanted["requeued"]["hicache_ratio"]


def test_a_measured_but_untold_setting_is_told_without_a_launch(open_study: OpenStudy, path: Path) -> None:
    """A crash between a measurement and its tell costs nothing: the record on disk is the truth."""
    proposal = next_of(open_study(), DONE)
    record = measured(proposal.setting, 0.5)
    resumed = open_study()
    resumed.settle()
    assert next_of(resumed, [*DONE, record]).setting != proposal.setting
    lost, told_again, _ = told(path)
    assert (lost.state, told_again.state, told_again.value) == (TrialState.FAIL, TrialState.COMPLETE, 0.5)
    assert told_again.params == lost.params


def test_settling_twice_changes_nothing(open_study: OpenStudy, path: Path) -> None:
    """A study that was left in order is not touched."""
    study = open_study()
    search_all(study, list(DONE), 2)
    states = [trial.state for trial in told(path)]
    for _ in range(2):
        open_study().settle()
    assert [trial.state for trial in told(path)] == states


def test_what_is_shown_first_is_what_is_proposed_first(tmp_path: Path) -> None:
    """The plan of a dry run holds where proposals do not follow from what is measured."""
    chosen = samplers(WIDE, name="random")
    study = Study(tmp_path / "study.db", samplers=chosen, objective=OBJECTIVE)
    assert search_all(study, list(DONE), 3) == first_proposals(chosen, 3)


@pytest.mark.parametrize("name", ["auto", "tpe", "cmaes", "random", "grid"])
def test_a_study_goes_on_after_a_stop_as_it_would_have(tmp_path: Path, name: SamplerName) -> None:
    """Whatever its sampler: one that is opened anew, and dies in a trial, proposes what one life does.

    CMA-ES draws by Optuna's own numbers of trials, which a trial that was cut off moves on, so it does not die here.
    """
    space = Ranges(hicache="on", mem_fraction_static="0.70:0.90:0.05", hicache_ratio="1.5:6:0.5").space()

    def opened(file: str) -> Study:
        return Study(tmp_path / file, samplers=samplers(space, 3, name), objective=OBJECTIVE)

    one_life = search_all(opened("one.db"), list(DONE), 8)
    records = list(DONE)
    search_all(opened("many.db"), records, 6)
    if name != "cmaes":
        next_of(opened("many.db"), records)  # and nobody learns how it ended
    for _ in range(2):
        study = opened("many.db")
        study.settle()
        search_all(study, records, 1)
    assert [record.setting for record in records[2:]] == one_life


def test_the_sampler_may_change_from_one_life_to_the_next(tmp_path: Path) -> None:
    """What one has learned is there for the next; no setting is measured twice."""
    records = list(DONE)
    names: tuple[SamplerName, ...] = ("random", "auto", "grid", "tpe", "cmaes", "auto")
    for name in names:
        study = Study(tmp_path / "study.db", samplers=samplers(NARROW, 1, name), objective=OBJECTIVE)
        study.settle()
        search_all(study, records, 1)
    assert len({record.setting.key for record in records[2:]}) == len(names) == NARROW_SETTINGS


def test_what_comes_first_is_fixed_when_the_study_is_made(tmp_path: Path) -> None:
    """Settings of earlier studies come before the sampler's own, also after a stop, and are not replaced by others."""
    wanted = [(16, 2), (32, 4), (16, 4), (32, 2)]
    first: list[dict[str, object]] = [
        {"hicache": True, "page_size": page, "hicache_ratio": ratio} for page, ratio in wanted
    ]

    def opened(first: list[dict[str, object]]) -> Study:
        return Study(tmp_path / "study.db", samplers=samplers(NARROW, name="random"), objective=OBJECTIVE, first=first)

    records = list(DONE)
    search_all(opened(first), records, 1)
    search_all(opened([]), records, 3)
    assert [(r.setting.page_size, r.setting.hicache_ratio) for r in records[2:]] == wanted


def test_the_sampler_hears_what_all_measurements_of_a_setting_say(open_study: OpenStudy, path: Path) -> None:
    """Once a confirmation has measured it too, its value is the P99 of all its requests; told once, not each time."""
    study, records = open_study(), list(DONE)
    (setting,) = search_all(study, records, 1)
    again = measured(setting, 2.0, number=8, seed=1001, purpose="confirm")
    parts = [base_ttft_s(record.seed) * factor for record, factor in ((records[2], 0.3), (again, 0.6))]
    for record, ttft_s in zip((records[2], again), parts, strict=True):
        write_requests(path.parent, record, ttft_s)
    for _ in range(2):
        proposal = next_of(study, [*records, again])
        assert proposal.setting.key != setting.key
        study.learn(proposal, measured(proposal.setting))
        records.append(measured(proposal.setting, number=9))
    of_setting = [trial for trial in told(path) if trial.user_attrs["setting"] == setting.label]
    assert [trial.value for trial in of_setting] == [
        records[2].p99_s,
        pytest.approx(float(np.quantile(np.concatenate(parts), 0.99))),
    ]
    assert of_setting[1].constraints == of_setting[0].constraints


def test_many_known_settings_are_told_without_a_launch(path: Path) -> None:
    """Trials of an imported study are heard of by the sampler, however many they are."""
    points = list(all_points(WIDE, Setting.canonical))[:35]
    study = Study(path, samplers=samplers(WIDE), objective=OBJECTIVE, first=[point.params for point in points])
    known = [measured(point.setting, 1 + place / 100) for place, point in enumerate(points)]
    proposed = next_of(study, [*DONE, *known])
    assert proposed.setting.key not in {record.setting.key for record in known}
    assert sum(trial.state is TrialState.COMPLETE for trial in told(path)) == len(points)


def test_equal_seeds_search_alike(tmp_path: Path) -> None:
    """Two studies of one seed propose the same settings for the same results."""
    found = []
    for name in ("a", "b"):
        study = Study(tmp_path / f"{name}.db", samplers=samplers(WIDE, 4), objective=OBJECTIVE)
        found.append([setting.key for setting in search_all(study, list(DONE), 8)])
    assert found[0] == found[1]


def test_case_55_a_result_outlasts_a_locked_database(open_study: OpenStudy, path: Path) -> None:
    """A dashboard that holds the file for 8 s delays the result, and loses nothing (case 55)."""
    held_s = json.loads((case_folder(55) / "two_jobs.json").read_text())["lock_held_s"]
    study = open_study()
    proposal = next_of(study, DONE)
    other = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    released = threading.Timer(held_s, lambda: other.execute("ROLLBACK"))
    released.start()
    try:
        study.learn(proposal, measured(proposal.setting, 0.7))
    finally:
        released.join()
        other.close()
    (trial,) = told(path)
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.7)


@pytest.mark.parametrize("damaged", [True, False])
def test_a_database_that_cannot_be_used_is_named(
    open_study: OpenStudy, path: Path, damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says which file, what to do, and that nothing measured is lost."""
    monkeypatch.setattr("tuning.study.SQLITE_TIMEOUT_S", 0)
    study = open_study()
    proposal = next_of(study, DONE)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    if damaged:
        other.close()
        path.write_bytes(b"no database" * 1000)
    steps: list[Callable[[], object]] = [
        lambda: study.learn(proposal, measured(proposal.setting)),
        lambda: study.propose(DONE),
        study.settle,
        open_study,
    ]
    for step in steps:
        with pytest.raises(StoreError, match=r"study\.db: Optuna cannot use it; .* every measurement is kept"):
            step()
    other.close()


def test_a_failing_region_is_left(open_study: OpenStudy) -> None:
    """Constraints steer the search: where everything breaks one, the last proposals are mostly elsewhere."""
    study, records = open_study(), list(DONE)
    for number in range(30):
        proposal = next_of(study, records)
        fits = proposal.setting.mem_fraction_static is not None and proposal.setting.mem_fraction_static < 0.8
        record = measured(proposal.setting, 1.0) if fits else failed(proposal.setting)
        records.append(record.model_copy(update={"number": number, "outcome": record.outcome}))
        study.learn(proposal, record)
    late = records[-10:]
    assert sum(record.outcome is Outcome.MEASURED for record in late) >= 6


def test_a_pareto_study_is_told_every_goal_and_goes_on(path: Path) -> None:
    """Of failed trials too, with their constraints; the directions stay over a resume."""
    goals = Objective(OBJECTIVE.constraints, 600.0, pareto=(read_metric("throughput"), read_metric("host_memory")))
    records = list(DONE)
    for outcome in (measured, failed, measured):
        study = Study(path, samplers=replace(samplers(WIDE), objectives=3), objective=goals)
        proposal = next_of(study, records)
        records.append(outcome(proposal.setting, number=len(records)))
        study.learn(proposal, records[-1])
    found = optuna.load_study(study_name="hicache-tune", storage=f"sqlite:///{path}")
    assert [direction.name for direction in found.directions] == ["MINIMIZE", "MAXIMIZE", "MINIMIZE"]
    trials = told(path)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3
    assert [trial.values[:2] for trial in trials] == [[1.0, 100.0], [600.0, 0.0], [1.0, 100.0]]
    assert [trial.constraints[LAUNCHED] for trial in trials] == [-1.0, 1.0, -1.0]


def test_what_preflight_refuses_is_told_and_never_proposed(path: Path) -> None:
    """It costs no launch; once nothing else is left the search ends, and Optuna keeps why."""

    def refusal(setting: Setting) -> str | None:
        return "too large" if (setting.mem_fraction_static or 0) > 0.8 else None

    space = Ranges(mem_fraction_static="0.7,0.8,0.9", hicache_ratio="2,4").space()
    study = Study(path, samplers=samplers(space), objective=OBJECTIVE, refusal=refusal)
    proposed = search_all(study, list(DONE), 50)
    assert len(proposed) == 6
    assert not any(map(refusal, proposed))
    refused = [trial for trial in told(path) if trial.user_attrs.get("refused") == "too large"]
    assert refused
    assert all(trial.constraints[LAUNCHED] > 0 and trial.value == OBJECTIVE.worst_s for trial in refused)
