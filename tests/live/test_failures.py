"""Launches that cannot work, on the real engine: one clear sentence, the right code, nothing left, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine.failure import FailureKind
from harness.store import read_trials
from tests.support import cli

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]

SEARCH = ("search", "--engine", "cpu", "--scenario", "cpu-smoke", "--study", "s", "--trials", "2")


def test_flag_that_sglang_does_not_know(tmp_path: Path) -> None:
    """A flag that the engine's own parser does not know is refused before anything is launched."""
    run = cli.start([*SEARCH, "--engine-arg=--schedul-policy=lpm"], tmp_path)
    assert run.wait(limit_s=60) == 1
    assert "SGLang 0.5.15 has no such flag; did you mean `schedule-policy`?" in run.said()
    assert "Traceback" not in run.said()
    assert run.left_behind() == []
    assert not (tmp_path / "results").exists()


def test_engine_that_never_gets_ready(tmp_path: Path) -> None:
    """A launch that stays in one phase for too long is ended and named after that phase."""
    run = cli.start([*SEARCH, "--ready-timeout", "2s"], tmp_path)
    assert run.wait(limit_s=120) == 1
    assert "slow_start" in run.said()
    assert "imports" in run.said()
    assert "Traceback" not in run.said()
    assert run.left_behind() == []


def test_setting_without_room_for_kv_is_infeasible(tmp_path: Path) -> None:
    """When no setting leaves room for KV, the search ends with code 2 and says what would help."""
    flags = ("--engine-arg=--mem-fraction-static=0.3", "--mem-fraction-static", "0.3", "--confirm-rounds", "0")
    run = cli.start([*SEARCH, *flags], tmp_path)
    assert run.wait(limit_s=150) == 2, run.said()
    kinds = {t.failure.kind for t in read_trials(tmp_path / "results/s") if t.failure}
    assert kinds == {FailureKind.KV_POOL_TOO_SMALL}
    assert "mem-fraction-static" in run.said()
    assert run.left_behind() == []
