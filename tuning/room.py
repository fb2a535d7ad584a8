"""Whether this machine has room for a study, beyond what each launch asks for: no swapping, and disk for storage."""

from __future__ import annotations

import os

from harness.engine.preflight import STORAGE_LEAST_BYTES, check_storage, check_swap
from harness.engine.spec import EngineSpec
from harness.telemetry import HostMemory
from tuning.config import Search


def check_machine(search: Search, spec: EngineSpec, *, unique_tokens: int) -> None:
    """Raise ConfigError when this machine swaps, or has no disk for the storage tier of a load of `unique_tokens`.

    What is elsewhere, as in a container's own file system, is not looked at.
    """
    if not spec.here:
        return
    check_swap(lambda: HostMemory.read().swapped_bytes)
    if search.engine != "docker":
        per_token = spec.kv_bytes_per_token()
        needed = STORAGE_LEAST_BYTES if per_token is None else unique_tokens * per_token
        check_storage(spec.around, {**os.environ, **spec.env}, needed_bytes=needed)
