"""When an engine is ready: alive, healthy and really generating.

One sign alone is wrong: SGLang prints its ready line before it finds its port taken, and /health may be answered
by somebody else's server on that port.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Callable

from harness.engine.client import EngineClient
from harness.engine.failure import Failure, FailureKind, LaunchFailed, classify, last_lines
from harness.engine.handle import EngineHandle
from harness.engine.spec import ReadyLimits
from harness.errors import Interrupted

POLL_S = 0.1


class LaunchPhase(enum.StrEnum):
    """How far a launch has come, by the latest of these lines in the log."""

    IMPORTS = "imports"
    WEIGHTS = "weights"
    KV_POOL = "kv pool"
    GRAPHS = "graphs"
    HOST_POOL = "host pool"
    WARM_UP = "warm-up"
    UP = "up"


PHASE_LINES = (
    (LaunchPhase.WEIGHTS, r"Load weight begin"),
    (LaunchPhase.KV_POOL, r"Load weight end"),
    (LaunchPhase.GRAPHS, r"Capture .*[Cc]uda graph begin|Capture .*CUDA graph begin"),
    (LaunchPhase.HOST_POOL, r"Allocating .*host (?:memory|pool)"),
    (LaunchPhase.WARM_UP, r"Uvicorn running|Application startup complete"),
    (LaunchPhase.UP, r"The server is fired up and ready to roll"),
)


def phase_of(log_text: str) -> LaunchPhase:
    """Return the furthest phase that the log shows."""
    reached = [phase for phase, pattern in PHASE_LINES if re.search(pattern, log_text)]
    return reached[-1] if reached else LaunchPhase.IMPORTS


def wait_ready(
    engine: EngineHandle,
    client: EngineClient,
    limits: ReadyLimits,
    *,
    on_phase: Callable[[LaunchPhase], None],
    should_stop: Callable[[], bool],
    log_tells_phases: bool = True,
) -> dict[str, float]:
    """Wait until the engine serves; return the seconds spent in each phase.

    Without a log of its own (`log_tells_phases`) only what it answers counts.

    Raises LaunchFailed with its class when the engine dies or stays in one phase for longer than `limits`.
    """
    started = entered = time.monotonic()
    phase, spent = LaunchPhase.IMPORTS, dict[str, float]()
    on_phase(phase)
    while True:
        if should_stop():
            raise Interrupted
        if engine.exit_code is not None:
            raise LaunchFailed(classify(engine.log_text, engine.exit_code))
        now = time.monotonic()
        reached = phase_of(engine.log_text) if log_tells_phases else LaunchPhase.UP
        if reached is not phase:
            spent[phase.value] = round(now - entered, 3)
            phase, entered = reached, now
            on_phase(phase)
        if phase is LaunchPhase.UP and engine.listens() and client.healthy() and client.generates():
            spent[phase.value] = round(time.monotonic() - entered, 3)
            return spent
        if now - entered > limits.phase_s or now - started > limits.total_s:
            said = f"no progress beyond `{phase.value}` after {now - started:.0f} s"
            raise LaunchFailed(Failure(FailureKind.SLOW_START, said, None, last_lines(engine.log_text)))
        time.sleep(POLL_S)
