"""The usual way to start an engine: as a process of this machine, with any Python that has SGLang."""

from __future__ import annotations

from dataclasses import dataclass

from harness.engine.handle import LaunchContext, LaunchPlan
from harness.engine.ledger import Ledger
from harness.engine.preflight import check_port
from harness.engine.process import SIGINTS, SIGTERM_ALONE, EngineProcess, free_port
from harness.engine.setting import Setting
from harness.engine.spec import PUBLIC_PORT, EngineSpec
from harness.engine.storage import StorageTier


@dataclass(frozen=True)
class ProcessLauncher:
    """Starts `python -m sglang.launch_server`."""

    spec: EngineSpec
    storage: StorageTier | None = None
    """Where a `file` storage tier lies; None leaves it to SGLang."""

    def command(self, setting: Setting) -> tuple[str, ...]:
        """Return the same launch on SGLang's usual port."""
        return tuple(self.spec.argv(setting, PUBLIC_PORT))

    def plan(self, setting: Setting) -> LaunchPlan:
        """Plan the launch of `setting`, on a port that is free now; raise ConfigError when the given one is not."""
        port = port_of(self.spec)
        return LaunchPlan(
            argv=tuple(self.spec.argv(setting, port)),
            command=self.command(setting),
            env={**self.spec.env, **(self.storage.variables(setting) if self.storage else {})},
            port=port,
            base_url=f"http://{self.spec.host}:{port}",
        )

    def launch(self, plan: LaunchPlan, context: LaunchContext) -> EngineProcess:
        """Start the process."""
        # From 0.5.23 on, SIGTERM lets the schedulers unpin their host pools, which the kernel does far more slowly.
        stop_signals = SIGTERM_ALONE if self.spec.around.is_late else SIGINTS
        return EngineProcess.launch(
            plan.argv,
            env=plan.env,
            port=plan.port,
            log_path=context.log_path,
            book=context.book,
            stop_signals=stop_signals,
        )

    def end_orphans(self, book: Ledger) -> int:
        """End the session that `book` still names."""
        return book.end_orphans()


def port_of(spec: EngineSpec) -> int:
    """Return the port of the next launch: the one given, if it can be bound (else ConfigError), or one that is free."""
    if spec.port is None:
        return free_port(spec.host)
    check_port(spec.port, spec.host, spec.around)
    return spec.port
