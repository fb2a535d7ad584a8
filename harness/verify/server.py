"""An engine launched only to be asked: ready when the block begins, gone when it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.engine.client import EngineClient
from harness.engine.handle import LaunchContext, Launcher
from harness.engine.launch import ProcessLauncher
from harness.engine.ledger import Ledger
from harness.engine.readiness import wait_ready
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.storage import StorageTier


@contextmanager
def launched(
    spec: EngineSpec,
    setting: Setting,
    *,
    say: Callable[[str], None],
    should_stop: Callable[[], bool],
    launcher: Callable[[Path], Launcher | None] = lambda folder: None,
    headers: dict[str, str] | None = None,
) -> Iterator[EngineClient]:
    """Launch `setting` and give a client of it; raise LaunchFailed with its class when it does not come up.

    `launcher` makes the way to start it, given a folder for what finds it again; None starts a process.
    """
    with tempfile.TemporaryDirectory(prefix="hicache-tune-") as folder:
        starts = launcher(Path(folder)) or ProcessLauncher(spec, StorageTier(Path(folder), spec.around))
        plan = starts.plan(setting)
        book = Ledger(Path(folder) / "running.json")
        engine = starts.launch(plan, LaunchContext(Path(folder) / "engine.log", book, should_stop))
        client = EngineClient(plan.base_url, headers)
        try:
            wait_ready(
                engine,
                client,
                spec.ready,
                on_phase=lambda phase: say(f"launch: {phase.value}"),
                should_stop=should_stop,
                log_tells_phases=plan.log_tells_phases,
            )
            yield client
        finally:
            client.close()
            engine.stop()
