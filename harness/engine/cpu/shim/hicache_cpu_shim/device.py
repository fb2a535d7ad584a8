"""The virtual device: a memory of fixed size that holds the weights and the KV pool.

SGLang sizes the KV pool as `free - total * (1 - mem_fraction_static)`, so with a fixed total and the weights'
real bytes the pool follows the fraction alone, on every machine. A fraction too small for the weights fails
with SGLang's own message. Nothing stops a fraction near 1: activations are not charged.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

HOST_RESERVE_BYTES = 1 << 30

_used_bytes = 0


def total_bytes() -> int:
    """Return the size of the device, in bytes."""
    return int(os.environ["HICACHE_TUNE_CPU_DEVICE_MIB"]) << 20


def charge(size_bytes: int) -> None:
    """Count `size_bytes` of the device as used; one scheduler process is one device."""
    global _used_bytes
    _used_bytes += size_bytes


def available_gib(*_args: object, **_kwargs: object) -> float:
    """Return the free memory of the device, in GiB: what `get_available_gpu_memory` promises."""
    return (total_bytes() - _used_bytes) / (1 << 30)


def patch_utils(utils: Any) -> None:
    """Make `sglang.srt.utils.common` ask the virtual device."""
    utils.get_available_gpu_memory = available_gib
    # "Unknown" gives SGLang's fixed default fraction, 0.88; its formula for known sizes keeps gigabytes free.
    utils.get_cpu_memory_capacity = lambda: None


def patch_loader(loader: Any) -> None:
    """Charge the parameters of every model that `sglang.srt.model_loader.loader` loads."""
    for kind in (loader.DefaultModelLoader, loader.DummyModelLoader):
        kind.load_model = _then(kind.load_model, lambda _self, model: charge(_bytes_of(model.parameters())))


def patch_memory_pool(memory_pool: Any) -> None:
    """Charge every KV pool that `sglang.srt.mem_cache.memory_pool` makes."""
    pool = memory_pool.MHATokenToKVPool
    pool.__init__ = _then(pool.__init__, lambda self, _none: charge(sum(self.get_kv_size_bytes())))


def patch_host_reserve(base: Any) -> None:
    """Lower the RAM that `sglang.srt.mem_cache.pool_host.base` insists on keeping free."""
    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = HOST_RESERVE_BYTES


def _then(method: Callable[..., Any], after: Callable[[Any, Any], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        after(self, result)
        return result

    return run


def _bytes_of(tensors: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors)
