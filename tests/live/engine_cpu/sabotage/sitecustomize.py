"""The shim with a switch: while the file SABOTAGE_SWITCH exists, every HiCache copy moves the wrong values.

First on PYTHONPATH, before the shim's own folder, whose `sitecustomize` this one stands in for.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

SWITCH = Path(os.environ["SABOTAGE_SWITCH"])


def sabotage(memory_pool_host: Any) -> None:
    """Patch the module as the shim does, and then the one function that all its copies go through."""
    transfers: Any = importlib.import_module("hicache_cpu_shim.transfers")
    honest = transfers.move

    def move(dst: Any, dst_at: Any, src: Any, src_at: Any) -> int:
        moved: int = honest(dst, dst_at, src, src_at)
        if SWITCH.exists():
            dst[dst_at] = dst[dst_at].roll(1, dims=-1)
        return moved

    transfers.move = move
    transfers.patch(memory_pool_host)


shim = importlib.import_module("hicache_cpu_shim")
shim.PATCHES["sglang.srt.mem_cache.memory_pool_host"] = "sitecustomize:sabotage"
shim.install()
