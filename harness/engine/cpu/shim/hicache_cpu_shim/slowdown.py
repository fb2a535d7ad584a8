"""A slower prefill on demand, so that what looks for regressions can be shown one."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any


def patch(model_runner: Any) -> None:
    """Make the prefills of `sglang.srt.model_executor.model_runner` take as many times as long as is asked for."""
    factor = float(os.environ.get("HICACHE_TUNE_CPU_PREFILL_FACTOR", "1"))
    if factor > 1:
        runner = model_runner.ModelRunner
        runner.forward = slowed(runner.forward, factor)


def slowed(forward: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """Make `forward` take `factor` times as long for a batch that is a prefill."""

    @functools.wraps(forward)
    def run(self: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        output = forward(self, forward_batch, *args, **kwargs)
        if forward_batch.forward_mode.is_extend():
            time.sleep((factor - 1) * (time.perf_counter() - started))
        return output

    return run
