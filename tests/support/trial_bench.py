"""Whole trials, with the real load process, against an engine that behaves as told."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness import trial
from harness.draft import Watch
from harness.engine.preflight import HostRoom
from harness.engine.readiness import LaunchPhase
from harness.engine.setting import Setting
from harness.engine.spec import ReadyLimits
from harness.load.job import ApiName, LoadProgress
from harness.store import Step, TrialRecord, read_trial
from harness.telemetry import NvmlUnavailable
from tests.support.fake_lab import FakeLab, FakeSpec, write_metrics
from tests.support.loads import chat_session, plan_of
from tests.support.processes import alive

MARKER = "HICACHE_TUNE_TEST_TRIAL"
SETTING = Setting(hicache=True, hicache_ratio=3, page_size=64)
STORING = SETTING.model_copy(update={"extra": {"hicache-storage-backend": "file"}})
PLAN = plan_of(chat_session("a", 3), chat_session("b", 3))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB."
LAUNCHED = ["preflight", "launch", "ready"]
WHOLE = [*LAUNCHED, "warm-up", "load", "drain", "stop", "hygiene"]


@dataclass
class Bench(Watch):
    """Runs trials in a folder, and is the user who watches them and may press Ctrl-C."""

    root: Path
    stop_in: LaunchPhase | str | None = None
    """The launch phase, or `load`, in which Ctrl-C is pressed."""
    stops: int = 0
    zombies_before: list[int] = field(default_factory=lambda: zombies())
    shown: list[str] = field(default_factory=list)

    def step(self, number: int, name: str) -> None:
        """Note a step that begins."""
        self.shown.append(name)

    def step_done(self, number: int, step: Step) -> None:
        """Note a step that has ended."""
        self.shown.append(f"{step.name} done")

    def launching(self, number: int, phase: LaunchPhase) -> None:
        """Press Ctrl-C in this phase."""
        self.stops += phase == self.stop_in

    def playing(self, number: int, progress: LoadProgress) -> None:
        """Press Ctrl-C under load, once a turn was answered."""
        self.stops += self.stop_in == "load" and progress.done > 0

    def lab(self, *behaviour: str) -> FakeLab:
        """Make a lab whose engines behave so."""
        self.root.mkdir(exist_ok=True)
        metrics = write_metrics(self.root)
        spec = FakeSpec(
            python=Path(sys.executable),
            model="m",
            sglang_version="0.5.15",
            base_flags=("--metrics", str(metrics), *behaviour),
            env={MARKER: str(self.root)},
            device="cpu",
            ready=ReadyLimits(phase_s=30.0),
        )
        return FakeLab(
            root=self.root,
            spec=spec,
            watch=self,
            should_stop=lambda: self.stops > 0,
            must_hurry=lambda: self.stops > 1,
            api=ApiName.CHAT,
            load_limit_s=30,
            hang_after_s=2.0,
            warm_up_tokens=50,
            device=NvmlUnavailable("no GPU"),
        )

    def run(self, *behaviour: str, setting: Setting = SETTING, room: HostRoom | None = None) -> TrialRecord:
        """Run one trial of an engine with this behaviour."""
        lab = self.lab(*behaviour)
        if room is not None:
            lab.room = room
        record = trial.run_trial(lab, number=3, purpose="search", setting=setting, plan=PLAN)
        assert read_trial(self.root / "trials" / "0003-search") == record
        return record

    def left_behind(self) -> list[int]:
        """List the processes of this bench's engines, zombies included, and the ledger's claim."""
        claimed = [0] if (self.root / "running.json").exists() else []
        left = [process.pid for process in psutil.process_iter() if self._is_ours(process)]
        return claimed + left + [pid for pid in zombies() if pid not in self.zombies_before]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARKER) == str(self.root)
        except psutil.Error:
            return False


def zombies() -> list[int]:
    """List the ended children of this process that nobody has collected."""
    return [child.pid for child in psutil.Process().children() if not alive(child.pid)]


def steps(record: TrialRecord) -> list[str]:
    """Name the steps that a trial has gone through."""
    return [step.name for step in record.steps]
