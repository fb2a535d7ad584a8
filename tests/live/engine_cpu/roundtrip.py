"""Copy KV to the host pool and back with SGLang's own pools and the shim; run by the engine's Python.

Prints one JSON object for each case: whether every value came back, and how long the copy limit made it sleep.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.memory_pool_host import MHATokenToKVPoolHost

PAIRS = (
    ("direct", "layer_first"),
    ("direct", "page_first_direct"),
    ("kernel", "layer_first"),
    ("kernel", "page_first"),
)
LAYERS, HEADS, DIM = 3, 2, 8
PAGES = 12


class Clock:
    """A clock that stands still and adds up what it was asked to sleep."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def perf_counter(self) -> float:
        """Say that no time has passed."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Count the seconds."""
        self.slept_s += seconds


def main() -> None:
    """Print the outcome of every pair and page size."""
    transfers: Any = importlib.import_module("hicache_cpu_shim.transfers")
    for (io_backend, layout), page_size in itertools.product(PAIRS, (1, 16, 32, 64)):
        transfers.time = clock = Clock()
        equal, moved = round_trip(io_backend, layout, page_size)
        case = {"io": io_backend, "layout": layout, "page": page_size}
        sys.stdout.write(json.dumps({**case, "equal": equal, "bytes": moved, "slept_s": clock.slept_s}) + "\n")


def round_trip(io_backend: str, layout: str, page_size: int) -> tuple[bool, int]:
    """Move pages out, to other places of the host pool, and back to other places of the device."""
    slots = PAGES * page_size
    device = MHATokenToKVPool(slots, page_size, torch.float32, HEADS, DIM, LAYERS, "cpu", False)
    host = MHATokenToKVPoolHost(device, 2.0, 0, page_size, layout)
    buffers = [*device.k_buffer, *device.v_buffer]
    for buffer in buffers:
        buffer.normal_()

    source, place, target = (pages(numbers, page_size) for numbers in ((2, 7, 3, 9), (11, 0, 5, 1), (6, 4, 10, 1)))
    before = [buffer[source].clone() for buffer in buffers]
    host.backup_from_device_all_layer(device, place, source, io_backend)
    for buffer in buffers:
        buffer.zero_()
    for layer in range(LAYERS):
        host.load_to_device_per_layer(device, place, target, layer, io_backend)

    untouched = [slot for slot in range(slots) if slot not in set(target.tolist())]
    restored = all(torch.equal(buffer[target], kept) for buffer, kept in zip(buffers, before, strict=True))
    alone = all(not buffer[untouched].any() for buffer in buffers)
    return restored and alone, 2 * sum(kept.nbytes for kept in before)


def pages(numbers: tuple[int, ...], page_size: int) -> torch.Tensor:
    """List the slots of the pages `numbers`."""
    return torch.cat([torch.arange(page_size) + number * page_size for number in numbers])


if __name__ == "__main__":
    main()
