"""A laboratory with the real engine on CPU, for tests that look into single trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.draft import Watch
from harness.engine.readiness import LaunchPhase
from harness.engine.spec import EngineSpec
from harness.lab import Lab
from harness.load.job import ApiName, LoadProgress
from harness.store import Step
from harness.telemetry import NvmlUnavailable
from tuning.engines import cpu_spec, default_model


@dataclass
class StepWatch(Watch):
    """Keeps the seconds of every step, and lets a test act while the load runs."""

    steps: list[Step] = field(default_factory=list)
    on_progress: Callable[[LoadProgress], None] = lambda _: None

    def step(self, number: int, name: str) -> None:
        """Pass over a step that begins."""

    def step_done(self, number: int, step: Step) -> None:
        """Keep a step that has ended."""
        self.steps.append(step)

    def launching(self, number: int, phase: LaunchPhase) -> None:
        """Pass over the phases of a launch."""

    def playing(self, number: int, progress: LoadProgress) -> None:
        """Let the test act."""
        self.on_progress(progress)


def cpu_lab(root: Path, watch: Watch, *, flags: tuple[str, ...] = (), **changes: Any) -> Lab:
    """Make a lab in `root` that launches engines with `flags` besides their own; `changes` set its other fields."""
    model = default_model("cpu")
    assert model is not None
    lab = Lab(
        root=root,
        spec=_with(cpu_spec(model, ()), flags),
        watch=watch,
        should_stop=lambda: False,
        must_hurry=lambda: False,
        api=ApiName.CHAT,
        load_limit_s=200,
        warm_up_tokens=100,
        device=NvmlUnavailable("no GPU"),
    )
    return replace(lab, **changes)


def _with(spec: EngineSpec, flags: tuple[str, ...]) -> EngineSpec:
    """Add `--name=value` flags as if the user had given them, without asking for 20 GB of disk for a storage tier."""
    fixed = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    around = replace(spec.around, fixed={**spec.around.fixed, **fixed})
    return replace(spec, base_flags=(*spec.base_flags, *flags), around=around)
