"""An engine that hangs under load, for real: its scheduler is stopped, as a deadlock would stop it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from harness.engine.failure import Blame, FailureKind
from harness.engine.setting import Setting
from harness.load.job import LoadProgress
from harness.store import Outcome
from harness.trial import run_trial
from tests.support.cpu_lab import StepWatch, cpu_lab
from tests.support.loads import chat_session, plan_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

PLAN = plan_of(*(chat_session(f"session {n} " + "and so on " * 100, 30) for n in range(4)))


def test_a_scheduler_that_hangs_ends_the_load(tmp_path: Path) -> None:
    """The load ends early and all of the engine is gone, though a stopped process follows no SIGTERM."""
    stopped: list[psutil.Process] = []

    def stop_the_scheduler(progress: LoadProgress) -> None:
        if progress.done and not stopped:
            leader = psutil.Process(json.loads((tmp_path / "running.json").read_text())["pid"])
            (scheduler,) = (p for p in leader.children(recursive=True) if "scheduler" in " ".join(p.cmdline()))
            scheduler.send_signal(signal.SIGSTOP)
            stopped.append(scheduler)

    lab = cpu_lab(tmp_path, StepWatch(on_progress=stop_the_scheduler), hang_after_s=5.0)
    record = run_trial(lab, number=0, purpose="search", setting=Setting(hicache=True, page_size=16), plan=PLAN)
    assert record.outcome is Outcome.FAILED
    assert record.failure is not None
    assert (record.failure.kind, record.failure.blame) == (FailureKind.HANG, Blame.MACHINE)
    assert "/health fails" in record.reason
    assert record.summary is not None
    assert record.summary.timed_out == 0
    assert record.summary.cut > 0
    assert record.hygiene.stop is not None
    assert record.hygiene.stop.clean
    assert not any(process.is_running() for process in stopped)
