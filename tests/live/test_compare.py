"""`compare` on the real engine, from the command line to compare.json: stopped once, and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.load.record import read_records
from harness.store import REQUESTS_FILE, Outcome, TrialRecord, folder_of, read_trials
from scenarios.plan import Phase
from tests.support import cli

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

COMPARE = (
    *("compare", "off,page=16", "HiCache ratio 4, write_through, page 16", "--engine", "cpu", "--study", "c"),
    *("--scenario", "cpu-smoke", "--sessions", "4", "--rounds", "1", "--rounds-most", "1", "--json"),
)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Compare two settings over one round, stopped with Ctrl-C under the second load; return folder and exit code."""
    folder = tmp_path_factory.mktemp("compare")
    stopped = cli.start(COMPARE, folder)
    stopped.wait_for((folder / "results/c/trials/0001-compare/load.log").exists, limit_s=250)
    stopped.interrupt()
    assert stopped.wait(limit_s=60) == 130, stopped.said()
    stopped.wait_nothing_left(limit_s=0.5)
    run = cli.start([*COMPARE, "--resume"], folder)
    code = run.wait(limit_s=250)
    assert code in (0, 124), run.said()
    run.wait_nothing_left(limit_s=0.5)
    return folder, code


@pytest.fixture(scope="module")
def answer(compared: tuple[Path, int]) -> dict[str, Any]:
    """Return the answer as it was printed."""
    printed: dict[str, Any] = cli.printed_json(compared[0])
    return printed


@pytest.fixture(scope="module")
def trials(compared: tuple[Path, int]) -> list[TrialRecord]:
    """Return the trials that ended, without the one that was stopped."""
    records = read_trials(compared[0] / "results" / "c")
    return [record for record in records if record.outcome is not Outcome.INTERRUPTED]


def test_the_answer_fits_its_exit_code(compared: tuple[Path, int], answer: dict[str, Any]) -> None:
    """Either the difference is decided or it is said that it is not; file and stdout are the same."""
    folder, code = compared
    assert answer == json.loads((folder / "results/c/compare.json").read_text(encoding="utf-8"))
    assert code == (124 if answer["kind"] == "undecided" else 0)
    assert answer["kind"] in ("lower", "higher", "equal", "undecided")
    assert answer["change_low"] <= answer["change"] <= answer["change_high"]


def test_both_were_measured_once_on_the_same_fresh_sessions(
    compared: tuple[Path, int], trials: list[TrialRecord]
) -> None:
    """The one that was stopped was measured again, the other was not."""
    assert [(trial.purpose, trial.seed, trial.setting.hicache) for trial in trials] == [
        ("compare", 2001, False),
        ("compare", 2001, True),
    ]
    played = [_counted(compared[0], trial) for trial in trials]
    assert played[0] == played[1]
    assert len(played[0]) == 16


def test_the_second_one_ran_with_hicache(trials: list[TrialRecord]) -> None:
    """What was written on the command line is what the engine ran."""
    assert all(trial.effective is not None and trial.effective.mismatches == () for trial in trials)
    assert [trial.setting.page_size for trial in trials] == [16, 16]
    assert trials[1].setting.hicache_ratio == 4.0


def _counted(folder: Path, trial: TrialRecord) -> set[tuple[str, int]]:
    frame = read_records(folder_of(folder / "results" / "c", trial.number, trial.purpose) / REQUESTS_FILE)
    counted = frame[frame["phase"] == Phase.COUNTED]
    return set(zip(counted["session_id"].astype(str), counted["turn"].astype(int), strict=True))
