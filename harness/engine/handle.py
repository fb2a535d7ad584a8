"""An engine while it runs, however it was started: as a process, in a container, or by somebody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.engine.ledger import Ledger
from harness.engine.process import StopProof
from harness.engine.setting import Setting


class EngineHandle(Protocol):
    """What a trial needs of a running engine."""

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs, and always for an engine that is not ours."""

    @property
    def log_text(self) -> str:
        """All that it has printed so far, as far as it can be seen."""

    def pids(self) -> list[int]:
        """List its living processes on this machine; empty when they are elsewhere."""

    def listens(self) -> bool:
        """Whether it, and nobody else, answers on its address."""

    def pin(self, cpus: Sequence[int]) -> None:
        """Keep it on these cores, where that can be done from here."""

    def stop(self, *, term_s: float = 30.0, must_hurry: Callable[[], bool] = lambda: False) -> StopProof | None:
        """End it to the last process and say what was seen; None when it is not ours to end."""


@dataclass(frozen=True)
class LaunchPlan:
    """How one setting will be started."""

    argv: tuple[str, ...]
    """The command; empty when nothing is started here."""
    command: tuple[str, ...] = ()
    """The command by which a user runs the setting for good; empty when there is none."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables besides the user's own."""
    port: int = 0
    base_url: str = ""
    stdin: bytes = b""
    """What the command reads."""
    log_tells_phases: bool = True
    """Whether the engine's own log is seen, from which readiness is read."""


@dataclass(frozen=True)
class LaunchContext:
    """What a launch needs of whoever asks for it, the same for every way to start an engine."""

    log_path: Path
    """Where its output goes."""
    book: Ledger
    """Where it is named for as long as it runs."""
    should_stop: Callable[[], bool] = lambda: False


class Launcher(Protocol):
    """A way to start engines, one at a time."""

    def command(self, setting: Setting) -> tuple[str, ...]:
        """Return the command by which a user runs `setting` for good; empty when there is none."""

    def plan(self, setting: Setting) -> LaunchPlan:
        """Plan the launch of `setting`; raise ConfigError when its port cannot be bound."""

    def launch(self, plan: LaunchPlan, context: LaunchContext) -> EngineHandle:
        """Start it; the ledger knows what is ours before this returns.

        Raises LaunchFailed when it could not be started, EngineMissing when there is no program to start, and
        Interrupted when it is to stop.
        """

    def end_orphans(self, book: Ledger) -> int:
        """End what an earlier, killed run left behind; return how many were found."""
