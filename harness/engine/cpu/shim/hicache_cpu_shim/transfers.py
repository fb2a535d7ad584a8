"""HiCache's copies between device and host pool, in plain torch.

Each function has the name and the parameters of the kernel of `sgl_kernel.kvcacheio` that it stands for
(tuning parameters of the kernels are taken and ignored):

=====================================  ======  ==================  ====================
function                               io      layout of the host  direction
=====================================  ======  ==================  ====================
transfer_kv_direct                     direct  layer_first         both
transfer_kv_per_layer_direct_pf_lf     direct  page_first_direct   host -> device
transfer_kv_all_layer_direct_lf_pf     direct  page_first_direct   device -> host
transfer_kv_per_layer                  kernel  layer_first         host -> device
transfer_kv_all_layer                  kernel  layer_first         device -> host
transfer_kv_per_layer_pf_lf            kernel  page_first          host -> device
transfer_kv_all_layer_lf_pf            kernel  page_first          device -> host
=====================================  ======  ==================  ====================

A KV buffer of one layer is [slot, head, dim]. In the host pool, layer_first is [layer, slot, head, dim],
page_first [slot, layer, head, dim] and page_first_direct [page, layer, slot in the page, head, dim].
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

Index: TypeAlias = torch.Tensor | tuple[torch.Tensor | int, ...]
Copy: TypeAlias = Callable[..., int]
"""A copy that returns the bytes it moved."""


def patch(memory_pool_host: Any) -> None:
    """Give `sglang.srt.mem_cache.memory_pool_host` the copies it lacks on CPU, and no pinned memory."""
    gb_per_s = os.environ.get("HICACHE_TUNE_CPU_COPY_GB_PER_S")
    bytes_per_s = float(gb_per_s) * 1e9 if gb_per_s else None
    for copy in COPIES:
        setattr(memory_pool_host, copy.__name__, limited(copy, bytes_per_s))

    pool = memory_pool_host.MHATokenToKVPoolHost
    pool.__init__ = functools.partialmethod(pool.__init__, pin_memory=False)


def limited(copy: Copy, bytes_per_s: float | None) -> Callable[..., None]:
    """Make `copy` take no less time than its bytes need at `bytes_per_s`; None leaves it as fast as it is."""

    @functools.wraps(copy)
    def run(*args: Any, **kwargs: Any) -> None:
        started = time.perf_counter()
        moved = copy(*args, **kwargs)
        if bytes_per_s is not None:
            time.sleep(max(0.0, moved / bytes_per_s - (time.perf_counter() - started)))

    return run


def move(dst: torch.Tensor, dst_at: Index, src: torch.Tensor, src_at: Index) -> int:
    """Copy `src[src_at]` to `dst[dst_at]` and return the bytes; every transfer goes through here."""
    rows = src[src_at]
    dst[dst_at] = rows
    return int(rows.nbytes)


def rows_at(address: int, slots: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """View raw memory at `address` as [slot, *shape], long enough for the highest of `slots`.

    The kernels get raw addresses of the layers' buffers, because a GPU kernel wants them in one tensor.
    """
    count = int(slots.max()) + 1
    size = count * torch.Size(shape).numel() * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(count, *shape)


def transfer_kv_direct(
    src_layers: Sequence[torch.Tensor],
    dst_layers: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> int:
    """Copy slots between lists of buffers of one layer each."""
    return sum(move(dst, dst_indices, src, src_indices) for src, dst in zip(src_layers, dst_layers, strict=True))


def transfer_kv_per_layer_direct_pf_lf(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    page_size: int,
) -> int:
    """Copy one layer's slots out of pages that hold all layers."""
    place = (src_indices // page_size, layer_id, src_indices % page_size)
    return sum(move(dst, dst_indices, src, place) for src, dst in zip(src_ptrs, dst_ptrs, strict=True))


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> int:
    """Copy all layers' slots (first every K layer, then every V layer) into pages that hold all layers."""
    layers = len(src_ptrs) // len(dst_ptrs)
    page, slot = dst_indices // page_size, dst_indices % page_size
    return sum(
        move(dst_ptrs[number // layers], (page, number % layers, slot), src, src_indices)
        for number, src in enumerate(src_ptrs)
    )


def transfer_kv_per_layer(
    src_k: torch.Tensor,
    dst_k: torch.Tensor,
    src_v: torch.Tensor,
    dst_v: torch.Tensor,
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    item_size: int,
    **_tuning: object,
) -> int:
    """Copy slots of one layer; both sides are [slot, head, dim]."""
    return move(dst_k, dst_indices, src_k, src_indices) + move(dst_v, dst_indices, src_v, src_indices)


def transfer_kv_all_layer(
    src_k_layers: torch.Tensor,
    dst_k_layers: torch.Tensor,
    src_v_layers: torch.Tensor,
    dst_v_layers: torch.Tensor,
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    item_size: int,
    num_layers: int,
    **_tuning: object,
) -> int:
    """Copy slots of all layers; the layers are raw addresses, a slot has `item_size` bytes."""
    sources = [*src_k_layers.tolist(), *src_v_layers.tolist()]
    targets = [*dst_k_layers.tolist(), *dst_v_layers.tolist()]
    return sum(
        move(
            rows_at(target, dst_indices, (item_size,), torch.uint8),
            dst_indices,
            rows_at(source, src_indices, (item_size,), torch.uint8),
            src_indices,
        )
        for source, target in zip(sources, targets, strict=True)
    )


def transfer_kv_per_layer_pf_lf(
    src_k: torch.Tensor,
    dst_k: torch.Tensor,
    src_v: torch.Tensor,
    dst_v: torch.Tensor,
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
    **_tuning: object,
) -> int:
    """Copy one layer's slots out of slots that hold all layers."""
    place = (src_indices, layer_id)
    return move(dst_k, dst_indices, src_k, place) + move(dst_v, dst_indices, src_v, place)


def transfer_kv_all_layer_lf_pf(
    src_k_layers: torch.Tensor,
    dst_k: torch.Tensor,
    src_v_layers: torch.Tensor,
    dst_v: torch.Tensor,
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
    **_tuning: object,
) -> int:
    """Copy slots of all layers, given as raw addresses, into slots that hold all layers."""
    return sum(
        move(dst, (dst_indices, layer), rows_at(address, src_indices, dst.shape[2:], dst.dtype), src_indices)
        for addresses, dst in ((src_k_layers, dst_k), (src_v_layers, dst_v))
        for layer, address in enumerate(addresses.tolist())
    )


COPIES: tuple[Copy, ...] = (
    transfer_kv_direct,
    transfer_kv_per_layer_direct_pf_lf,
    transfer_kv_all_layer_direct_lf_pf,
    transfer_kv_per_layer,
    transfer_kv_all_layer,
    transfer_kv_per_layer_pf_lf,
    transfer_kv_all_layer_lf_pf,
)
