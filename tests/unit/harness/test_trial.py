"""Whole trials, with the real load process, against an engine that behaves as told."""

from __future__ import annotations

import pandas as pd
import pytest

from harness import trial
from harness.engine.failure import Blame, FailureKind
from harness.engine.readiness import LaunchPhase
from harness.engine.setting import Setting
from harness.engine.storage import STORAGE_FOLDER_VARIABLE
from harness.errors import LoadError
from harness.store import Mismatch, Outcome, TrialRecord
from harness.telemetry.sample import COLUMNS
from tests.support.trial_bench import LAUNCHED, MARKER, OOM, PLAN, SETTING, STORING, WHOLE, Bench, steps


def kind(record: TrialRecord) -> FailureKind:
    """Return why the trial failed; its sentence is the reason."""
    assert record.outcome is Outcome.FAILED
    assert record.failure is not None
    assert record.reason == record.failure.sentence
    return record.failure.kind


def test_a_trial_that_goes_well(bench: Bench) -> None:
    """All steps in order, every figure where it belongs, every file in place, and a proof that nothing is left."""
    record = bench.run()
    assert (record.outcome, record.reason, record.failure) == (Outcome.MEASURED, "", None)
    assert steps(record) == WHOLE
    assert bench.shown == [shown for step in WHOLE for shown in _as_shown(step)]
    assert (record.number, record.purpose, record.setting, record.seed) == (3, "search", SETTING.canonical(), PLAN.seed)
    assert record.argv[-2:] == ("--page-size", "64")
    assert record.env == {MARKER: str(bench.root)}

    assert record.effective is not None
    assert record.effective.device_pool_tokens == 6144
    assert record.effective.host_pool_tokens is not None
    assert list(record.effective.launch_phases_s)[-1] == "up"
    assert record.effective.mismatches == ()

    assert record.summary is not None
    assert (record.summary.ok, record.summary.failed, record.summary.cut, record.summary.not_played) == (6, 0, 0, 0)
    assert record.summary.by_tier.keys() == {"host", "none"}
    assert record.cache is not None
    assert (record.cache.prompt_tokens, record.cache.host_cached_tokens) == (6 * 200, 5 * 128)
    assert record.headroom is not None
    assert record.headroom.host_bytes
    assert record.headroom.device_reason == "no GPU"
    assert record.client is not None

    assert record.hygiene.flush_tries == 1
    assert record.hygiene.first_request_cached_tokens == 0
    assert record.hygiene.memory_back is None
    assert record.hygiene.stop is not None
    assert record.hygiene.stop.clean
    assert record.hygiene.stop.killed == 1, "the scheduler that ignores SIGTERM"

    folder = bench.root / "trials" / "0003-search"
    assert {path.name for path in folder.iterdir()} == {
        *("trial.json", "engine.log", "requests.parquet", "samples.parquet", "load.json", "load.log", "load_job.json"),
        *("metrics_before.txt", "metrics_after.txt"),
    }
    assert [path.name for path in (bench.root / "plans").iterdir()] == ["seed-1.jsonl"]


def _as_shown(step: str) -> tuple[str, ...]:
    return step, f"{step} done"


def test_samples_and_requests_are_on_one_clock(bench: Bench) -> None:
    """Telemetry begins before the first request is sent, ends after the last reply, and is summed up in the record."""
    record = bench.run()
    folder = bench.root / "trials" / "0003-search"
    samples, requests = (pd.read_parquet(folder / name) for name in ("samples.parquet", "requests.parquet"))
    assert list(samples.columns) == list(COLUMNS)
    assert samples["t_ns"].min() < requests["sent_ns"].min() < requests["end_ns"].max() < samples["t_ns"].max()
    assert record.conditions is not None
    assert record.conditions.scrapes.count >= 1
    assert record.conditions.host.engine_cores is not None
    assert record.reload is not None
    assert record.cache is not None
    assert record.reload.tokens == record.cache.load_back_tokens


def test_a_host_pool_that_cannot_fit_is_not_launched(bench: Bench) -> None:
    """Preflight refuses before a process is started."""
    record = bench.run(setting=Setting(hicache=True, hicache_size=500))
    assert kind(record) is FailureKind.HOST_MEMORY_REFUSED
    assert "nothing was launched" in record.reason
    assert steps(record) == ["preflight"]
    assert record.argv == ()
    assert not (bench.root / "trials/0003-search/engine.log").exists()


def test_a_crash_at_start(bench: Bench) -> None:
    """The engine's words and exit code class it, and its child does not outlive it."""
    words = "ValueError: Not enough host memory available. Requesting 52.00 GB but only have 12.00 GB free."
    record = bench.run("--die-at-start", "--last-words", words, "--exit-code", "7")
    assert kind(record) is FailureKind.HOST_MEMORY_REFUSED
    assert record.failure is not None
    assert record.failure.exit_code == 7
    assert record.failure.last_lines[-1].endswith(words)
    assert steps(record) == [*LAUNCHED, "stop"]
    assert record.summary is None


def test_a_death_in_the_warm_up(bench: Bench) -> None:
    """A control call that is not answered is classed by the engine's log, in which it had come up before."""
    record = bench.run("--die-in-warm-up", "--last-words", OOM)
    assert kind(record) is FailureKind.GPU_OOM_UNDER_LOAD
    assert steps(record) == [*LAUNCHED, "warm-up", "stop"]


def test_a_death_under_load(bench: Bench) -> None:
    """The load ends early, its early replies are kept and never become a P99 to compare."""
    record = bench.run("--die-after", "3", "--last-words", OOM)
    assert kind(record) is FailureKind.GPU_OOM_UNDER_LOAD
    assert steps(record) == [*LAUNCHED, "warm-up", "load", "stop"]
    assert record.summary is not None
    assert record.summary.ok == 3
    assert not record.usable


def test_a_hang_under_load(bench: Bench) -> None:
    """The load ends long before its requests time out; those in flight are cut, and no TTFT is made of them."""
    record = bench.run("--hang-after", "3")
    assert kind(record) is FailureKind.HANG
    assert "its counters stand still, and /health fails" in record.reason
    assert record.failure is not None
    assert record.failure.blame is Blame.MACHINE
    assert steps(record) == [*LAUNCHED, "warm-up", "load", "stop"]
    assert record.summary is not None
    assert (record.summary.ok, record.summary.timed_out) == (3, 0)
    assert record.summary.cut > 0
    assert not record.usable


def test_ctrl_c_while_it_launches(bench: Bench) -> None:
    """An engine that is not ready yet is stopped, and the trial says that it was interrupted."""
    bench.stop_in = LaunchPhase.HOST_POOL
    record = bench.run("--never-ready")
    assert (record.outcome, record.reason) == (Outcome.INTERRUPTED, "stopped by the user")
    assert steps(record) == [*LAUNCHED, "stop"]


def test_ctrl_c_under_load(bench: Bench) -> None:
    """The load process writes what it has, and both processes end."""
    bench.stop_in = "load"
    record = bench.run("--first-token-s", "0.6")
    assert (record.outcome, record.failure) == (Outcome.INTERRUPTED, None)
    assert steps(record) == [*LAUNCHED, "warm-up", "load", "stop"]
    assert (bench.root / "trials/0003-search/load.json").exists()


def test_a_flush_that_is_refused_for_a_while(bench: Bench) -> None:
    """The trial starts once the caches are empty; the tries are kept."""
    record = bench.run("--refused-flushes", "2")
    assert record.outcome is Outcome.MEASURED
    assert record.hygiene.flush_tries == 3


def test_a_flush_that_is_refused_for_good(bench: Bench) -> None:
    """A trial that would start warm is not played."""
    record = bench.run("--refused-flushes", "1000000")
    assert kind(record) is FailureKind.FLUSH_FAILED
    assert steps(record) == [*LAUNCHED, "warm-up", "stop"]


def test_a_start_that_was_not_cold(bench: Bench) -> None:
    """When the first turn finds cached tokens the measurement is at fault, not the setting."""
    record = bench.run("--warm")
    assert (record.outcome, record.failure) == (Outcome.INVALID, None)
    assert record.reason == "the first request found cached tokens; the start was not cold"
    assert record.hygiene.first_request_cached_tokens == 128


def test_a_storage_tier_starts_empty_and_is_removed(bench: Bench) -> None:
    """It lies in the study, where the engine is told to put it; a trial without one says nothing of it."""
    stored = bench.root / "storage" / "of-an-earlier-trial.bin"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"kv")
    record = bench.run(setting=STORING)
    assert record.outcome is Outcome.MEASURED
    assert record.env[STORAGE_FOLDER_VARIABLE] == str(bench.root / "storage")
    assert record.hygiene.storage_emptied is True
    assert not stored.parent.exists()


def test_an_engine_that_runs_something_else(bench: Bench) -> None:
    """A flag that the engine runs with another value is kept, and does not spoil the trial."""
    record = bench.run(setting=SETTING.model_copy(update={"page_size": 32}))
    assert record.outcome is Outcome.MEASURED
    assert record.effective is not None
    assert record.effective.mismatches == (Mismatch(flag="--page-size", asked="32", got="64"),)


def test_a_load_process_that_fails_is_not_the_setting_s_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is stopped, and the trial says that the measurement went wrong."""

    def broken(*_: object, **__: object) -> None:
        raise LoadError("the load process ended with code 1")

    monkeypatch.setattr(trial, "run_load", broken)
    record = bench.run()
    assert (record.outcome, record.reason) == (Outcome.INVALID, "the load process ended with code 1")
    assert steps(record) == [*LAUNCHED, "warm-up", "load", "stop"]
