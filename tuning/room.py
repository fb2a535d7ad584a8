"""Whether this machine has room for a study, beyond what each launch asks for: no swapping, and disk for storage."""

from __future__ import annotations

from pathlib import Path

from harness.engine.preflight import check_swap
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.storage import STORAGE_LEAST_BYTES, StorageTier
from harness.telemetry import HostMemory
from tuning.config import Search

BACKEND = "hicache-storage-backend"


def check_machine(search: Search, spec: EngineSpec, root: Path, *, unique_tokens: int) -> None:
    """Raise ConfigError when this machine swaps, or has no disk for the storage tier of a load of `unique_tokens`.

    `root` is the study's folder. What is elsewhere, as in a container's own file system, is not looked at.
    """
    if not spec.here:
        return
    check_swap(lambda: HostMemory.read().swapped_bytes)
    tier = StorageTier(root, spec.around)
    if search.engine != "docker" and _stores(search, tier):
        per_token = spec.kv_bytes_per_token()
        tier.check_room(needed_bytes=STORAGE_LEAST_BYTES if per_token is None else unique_tokens * per_token)


def _stores(search: Search, tier: StorageTier) -> bool:
    """Whether some setting of the search may store files: by a flag of every launch, or by one that is searched."""
    searched = [value for found in search.space.dimensions if found.name == BACKEND for value in found.ends]
    settings = [Setting(hicache=True, extra={BACKEND: value}) for value in searched] or [Setting(hicache=True)]
    return any(map(tier.serves, settings))
