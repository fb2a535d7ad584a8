"""An engine launched only to be verified: ready when the block begins, gone when it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.engine.client import EngineClient
from harness.engine.ledger import Ledger
from harness.engine.process import EngineProcess, free_port
from harness.engine.readiness import wait_ready
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec


@contextmanager
def launched(
    spec: EngineSpec, setting: Setting, *, say: Callable[[str], None], should_stop: Callable[[], bool]
) -> Iterator[EngineClient]:
    """Launch `setting` and give a client of it; raise LaunchFailed with its class when it does not come up."""
    with tempfile.TemporaryDirectory(prefix="hicache-tune-") as folder:
        port = free_port(spec.host)
        engine = EngineProcess.launch(
            spec.argv(setting, port),
            env=dict(spec.env),
            port=port,
            log_path=Path(folder) / "engine.log",
            book=Ledger(Path(folder) / "running.json"),
        )
        client = EngineClient(f"http://{spec.host}:{port}")
        try:
            wait_ready(
                engine,
                client,
                spec.ready,
                on_phase=lambda phase: say(f"launch: {phase.value}"),
                should_stop=should_stop,
            )
            yield client
        finally:
            client.close()
            engine.stop()
