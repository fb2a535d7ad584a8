"""An engine that serves more than one trial: when it does, and that nothing of one trial reaches the next."""

from __future__ import annotations

import psutil
import pytest

from harness import trial
from harness.engine.failure import FailureKind
from harness.engine.setting import Setting
from harness.store import Outcome
from tests.support.trial_bench import OOM, PLAN, SETTING, STORING, WHOLE, Bench, steps


def batch_of(requests: int, setting: Setting = SETTING) -> Setting:
    """Return the setting with another bound on its running requests, which a running engine can be given."""
    return setting.model_copy(update={"extra": {"pp-max-micro-batch-size": requests}})


def test_the_next_trial_goes_on_with_the_engine(bench: Bench) -> None:
    """Its start is cold, its counters are its own, its command is its setting's; the last one ends the engine."""
    lab = bench.lab()
    lab.followed_by = batch_of(4)
    first = trial.run_trial(lab, number=0, purpose="search", setting=batch_of(8), plan=PLAN)
    lab.followed_by = None
    second = trial.run_trial(lab, number=1, purpose="search", setting=batch_of(4), plan=PLAN)
    assert (first.outcome, second.outcome) == (Outcome.MEASURED, Outcome.MEASURED)
    assert (first.relaunched, second.relaunched) == (True, False)
    assert steps(first) == WHOLE[:-2]
    assert steps(second) == ["take over", "ready", "warm-up", "load", "drain", "stop", "hygiene"]
    assert second.hygiene.first_request_cached_tokens == 0
    assert first.cache is not None
    assert second.cache is not None
    assert first.cache.prompt_tokens == second.cache.prompt_tokens == 6 * 200
    assert second.effective is not None
    assert second.effective.mismatches == ()
    assert (second.argv, second.command[-1]) == (first.argv, "4")
    assert second.forecast == first.forecast
    assert first.hygiene.stop is None
    assert second.hygiene.stop is not None
    assert second.hygiene.stop.clean


@pytest.mark.parametrize("doubt", ["--stubborn", "--busy-after-load", "dead"])
def test_at_any_doubt_the_engine_is_launched_again(bench: Bench, doubt: str) -> None:
    """When it does not change, has died since, or does not get empty; what is left of it is ended first."""
    lab = bench.lab(*([doubt] if doubt.startswith("--") else []))
    lab.followed_by = batch_of(4)
    trial.run_trial(lab, number=0, purpose="search", setting=batch_of(8), plan=PLAN)
    assert lab.kept is not None
    if doubt == "dead":
        psutil.Process(lab.kept.engine.pids()[0]).kill()
    lab.followed_by = None
    second = trial.run_trial(lab, number=1, purpose="search", setting=batch_of(4), plan=PLAN)
    assert (second.outcome, second.relaunched) == (Outcome.MEASURED, True)
    assert steps(second) == ["take over", *WHOLE]


@pytest.mark.parametrize(
    ("setting", "following"),
    [
        (SETTING, None),
        (SETTING, SETTING.model_copy(update={"hicache_ratio": 4})),
        (batch_of(8), SETTING),
        (STORING, STORING),
    ],
)
def test_an_engine_is_kept_only_for_what_it_can_become(
    bench: Bench, setting: Setting, following: Setting | None
) -> None:
    """Not for what needs a launch, and not with a storage tier, which is emptied between engines."""
    lab = bench.lab()
    lab.followed_by = following
    record = trial.run_trial(lab, number=0, purpose="search", setting=setting, plan=PLAN)
    assert steps(record) == WHOLE
    assert lab.kept is None


def test_a_kept_engine_that_nothing_follows_is_ended(bench: Bench) -> None:
    """By whoever asked for it to be kept."""
    lab = bench.lab()
    lab.followed_by = SETTING
    trial.run_trial(lab, number=0, purpose="search", setting=SETTING, plan=PLAN)
    assert bench.left_behind() != []
    lab.end_kept()
    assert bench.left_behind() == []
    lab.end_kept()


def test_a_trial_that_fails_leaves_no_engine_for_the_next(bench: Bench) -> None:
    """It is in no state to be gone on with."""
    lab = bench.lab("--die-after", "3", "--last-words", OOM)
    lab.followed_by = SETTING
    record = trial.run_trial(lab, number=0, purpose="search", setting=SETTING, plan=PLAN)
    assert record.failure is not None
    assert record.failure.kind is FailureKind.GPU_OOM_UNDER_LOAD
    assert lab.kept is None
