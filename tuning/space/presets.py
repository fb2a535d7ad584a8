"""Spaces that need no flags: what pays most for the trials that it costs, on each kind of engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tuning.space.dimension import SGLANG_DEFAULT, Condition, Dimension
from tuning.space.ranges import Ranges
from tuning.space.space import Space, arranged
from tuning.space.values import TRANSFER, TRANSFERS, WRITE_POLICIES, listed

Engine = Literal["local", "docker", "attach", "cpu"]
"""How an engine comes to be: started here, in a container, by somebody else, or here on CPU."""
Preset = Literal["hicache", "hicache+memory", "full"]
DEFAULT_PRESET: Preset = "hicache+memory"

HICACHE_ALONE = Ranges(
    hicache_ratio="1.5:6:0.5", hicache_write_policy=",".join(WRITE_POLICIES), transfer=",".join(TRANSFERS)
)
GPU_MEMORY = {"mem_fraction_static": "0.70:0.92:0.02", "page_size": "1,16,32,64"}
CPU_MEMORY = {"mem_fraction_static": "0.84:0.92:0.02", "page_size": "16,32"}
"""Below 0.84 the weights leave the small virtual device no KV pool."""

PREFETCH_POLICIES = ("best_effort", "wait_complete", "timeout")
CACHE_POLICIES = {
    "schedule-policy": ("fcfs", "lpm", "dfs-weight"),
    "radix-eviction-policy": ("lru", "lfu", "slru"),
}
"""Policies that know the cache, beside SGLang's defaults; `priority` is for requests that have one, `tlru` of 0.5.23
for a threshold that only the user can choose."""
GPU_CHUNKS, CPU_CHUNKS = (2048, 4096, 8192, 16384), (512, 1024, 2048)
CPU_STORAGE = Condition(name=TRANSFER, values=("direct/page_first_direct",))
"""The pair over which the storage tier is known to work on CPU."""


def preset_space(engine: Engine, preset: Preset = DEFAULT_PRESET) -> Space:
    """Return the space of a preset alone."""
    return arranged(preset_dimensions(engine, preset))


def preset_dimensions(engine: Engine, preset: Preset) -> list[Dimension]:
    """Return the dimensions of a preset.

    `hicache` is HiCache alone, at SGLang's own memory fraction and page size. `hicache+memory` adds these two, and
    `full` all that schedules, evicts, stores and makes KV smaller. On CPU they hold only what that engine can run.
    """
    memory = CPU_MEMORY if engine == "cpu" else GPU_MEMORY
    ranges = HICACHE_ALONE if preset == "hicache" else HICACHE_ALONE.model_copy(update=memory)
    return [*ranges.dimensions(), *(_further(engine) if preset == "full" else ())]


def _further(engine: Engine) -> Iterator[Dimension]:
    on_cpu = engine == "cpu"
    chunks = CPU_CHUNKS if on_cpu else GPU_CHUNKS
    yield listed("chunked-prefill-size", chunks, where="full")
    for name, values in CACHE_POLICIES.items():
        yield listed(name, values, where="full")
    if not on_cpu:  # its attention computes in float32 alone
        yield listed("kv-cache-dtype", ("auto", "fp8_e4m3"), where="full")
    storage, when = "hicache-storage-backend", (CPU_STORAGE,) if on_cpu else ()
    yield listed(storage, (SGLANG_DEFAULT, "file"), where="full", when=when)
    with_storage = Condition(name=storage, values=("file",))
    yield listed("hicache-storage-prefetch-policy", PREFETCH_POLICIES, where="full", when=(with_storage,))
