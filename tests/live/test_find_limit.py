"""`find-limit` on the real engine, from the command line to limit.json: killed, resumed, and asked the impossible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.store import TrialRecord, read_trials
from tests.support import cli

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

SCENARIO = Path(__file__).parents[1] / "data" / "scenarios" / "limit.yaml"
COMMON = ("find-limit", "--engine", "cpu", "--scenario", str(SCENARIO), "--start-rate", "1", "--json")
KEPT = (*COMMON, "--study", "kept", "--slo", "ttft.p99 <= 60s", "--max-rate", "2", "--precision", "1")
MISSED = (*COMMON, "--study", "missed", "--slo", "ttft.p99 <= 1ms", "--min-rate", "1", "--hicache-ratio", "2")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Search a limit that two rates keep, and return the folder; killed under its first load, and resumed."""
    folder = tmp_path_factory.mktemp("limit")
    killed = cli.start(KEPT, folder)
    killed.wait_for((folder / "results/kept/trials/0000-limit/load.log").exists, limit_s=200)
    killed.kill()
    killed.wait_nothing_left(limit_s=30)
    run = cli.start([*KEPT, "--resume"], folder)
    assert run.wait(limit_s=500) == 0, run.said()
    run.wait_nothing_left(limit_s=0.5)
    return folder


@pytest.fixture(scope="module")
def limit(found: Path) -> dict[str, Any]:
    """Return the answer as it was printed."""
    printed: dict[str, Any] = cli.printed_json(found)
    return printed


@pytest.fixture(scope="module")
def trials(found: Path) -> list[TrialRecord]:
    """Return the probes' records."""
    return read_trials(found / "results" / "kept")


def test_the_answer_is_on_stdout_and_on_disk(found: Path, limit: dict[str, Any]) -> None:
    """The highest rate was kept, with other sessions too, and none was missed."""
    assert limit == json.loads((found / "results/kept/limit.json").read_text(encoding="utf-8"))
    assert (limit["ended"], limit["meets_per_s"], limit["misses_per_s"]) == ("none missed", 2.0, None)
    assert [probe["rate_per_s"] for probe in limit["probes"]] == [1.0, 2.0, 2.0]
    assert all(probe["meets"] and 0 < probe["p50_s"] <= probe["p99_s"] < 60 for probe in limit["probes"])
    assert not limit["setting"]["hicache"]


def test_a_killed_probe_is_probed_again(found: Path, trials: list[TrialRecord]) -> None:
    """The one that was cut off has no record; its rate was probed after the resume, and only then the next."""
    assert not (found / "results/kept/trials/0000-limit/trial.json").exists()
    assert [(trial.number, trial.rate_per_s) for trial in trials] == [(1, 1.0), (2, 2.0), (3, 2.0)]
    assert [trial.seed for trial in trials] == [1, 1, 1001]


def test_one_engine_serves_all_probes_of_a_run(trials: list[TrialRecord]) -> None:
    """Only the first probe after the resume launches one; all of them start cold, and the last one's is ended."""
    assert [trial.relaunched for trial in trials] == [True, False, False]
    assert len({trial.argv for trial in trials}) == 1
    assert all(trial.cache is not None and not trial.cache.epoch_reset for trial in trials)


def test_a_faster_probe_plays_the_same_sessions(trials: list[TrialRecord]) -> None:
    """Ten counted sessions of two turns at every rate, all answered; only their arrivals are closer together."""
    assert all(trial.summary is not None and trial.summary.failed == 0 for trial in trials)
    assert all(trial.hygiene.first_request_cached_tokens == 0 for trial in trials)


def test_a_level_that_no_rate_keeps_is_exit_code_2(tmp_path: Path) -> None:
    """The load ends as soon as the level is missed for good, and the sentence names the lowest rate."""
    run = cli.start(MISSED, tmp_path)
    assert run.wait(limit_s=300) == 2, run.said()
    run.wait_nothing_left(limit_s=0.5)
    limit = cli.printed_json(tmp_path)
    assert (limit["ended"], limit["meets_per_s"], limit["misses_per_s"]) == ("none kept", None, 1.0)
    assert len(limit["probes"]) == 1
    assert limit["setting"]["hicache"]
    assert "No rate that was probed keeps ttft.p99 <= 1ms" in run.said()
    assert "not even 1 sessions/s" in run.said()
