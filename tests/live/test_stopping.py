"""Ctrl-C at every phase of a trial: nothing keeps running and nothing is lost. SIGKILL is in `test_search`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.store import Outcome, read_trials
from tests.support import cli

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

SEARCH = (
    *("search", "--engine", "cpu", "--scenario", "cpu-smoke", "--sessions", "4", "--study", "s"),
    *("--trials", "2", "--confirm-rounds", "0"),
)
INTERRUPTED = 130
PHASES = ("imports", "weights", "warm-up", "load")


def _in_phase(folder: Path, phase: str) -> Callable[[], bool]:
    """Return a question whether the first trial has come to `phase`, asked of the files that it writes."""
    trial = folder / "results/s/trials/0000-search"
    signs = {
        "imports": (trial / "engine.log", ""),
        "weights": (trial / "engine.log", "Init torch distributed begin"),
        "warm-up": (trial / "engine.log", "fired up and ready"),
        "load": (trial / "load.log", ""),
    }
    path, text = signs[phase]
    return lambda: path.exists() and text in path.read_text(errors="replace")


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c(phase: str, tmp_path: Path) -> None:
    """One Ctrl-C ends the search with code 130, says how to go on, and leaves no process."""
    run = cli.start(SEARCH, tmp_path)
    run.wait_for(_in_phase(tmp_path, phase))
    run.interrupt()
    assert run.wait(limit_s=60) == INTERRUPTED, run.said()
    assert run.left_behind() == []
    assert "--resume" in run.said()
    assert "Traceback" not in run.said()
    assert [trial.outcome for trial in read_trials(tmp_path / "results/s")] == [Outcome.INTERRUPTED]


def test_second_ctrl_c_is_safe(tmp_path: Path) -> None:
    """Pressing Ctrl-C again and again only makes it quicker."""
    run = cli.start(SEARCH, tmp_path)
    run.wait_for(_in_phase(tmp_path, "load"))
    for _ in range(3):
        run.interrupt()
    assert run.wait(limit_s=30) == INTERRUPTED, run.said()
    assert run.left_behind() == []
