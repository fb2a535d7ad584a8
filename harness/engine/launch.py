"""The usual way to start an engine: as a process of this machine, with any Python that has SGLang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.engine.handle import LaunchPlan
from harness.engine.ledger import Ledger
from harness.engine.process import EngineProcess, free_port
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec


@dataclass(frozen=True)
class ProcessLauncher:
    """Starts `python -m sglang.launch_server`."""

    spec: EngineSpec

    def plan(self, setting: Setting) -> LaunchPlan:
        """Plan the launch of `setting`, on a port that is free now."""
        port = free_port(self.spec.host)
        return LaunchPlan(
            argv=tuple(self.spec.argv(setting, port)),
            env=dict(self.spec.env),
            port=port,
            base_url=f"http://{self.spec.host}:{port}",
        )

    def launch(
        self,
        plan: LaunchPlan,
        setting: Setting,
        *,
        log_path: Path,
        book: Ledger,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> EngineProcess:
        """Start the process; it is in `book` before this returns."""
        return EngineProcess.launch(plan.argv, env=dict(plan.env), port=plan.port, log_path=log_path, book=book)

    def end_orphans(self, book: Ledger) -> int:
        """End the session that `book` still names."""
        return book.end_orphans()
