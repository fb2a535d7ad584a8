"""The engine's flags that decide what its caches, its memory and its scheduler do, and what each does.

From the sources of SGLang 0.5.15 and 0.5.23; which of them an engine has, and their choices, its own parser says.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Area(enum.StrEnum):
    """What a flag is about."""

    HICACHE = "HiCache"
    STORAGE = "storage tier"
    MEMORY = "memory"
    CACHE = "cache"
    SCHEDULING = "scheduling"
    KERNELS = "kernels"
    PARALLEL = "parallel"


@dataclass(frozen=True)
class Meaning:
    """What one flag does; `unit` is empty for names and switches."""

    name: str
    area: Area
    does: str
    unit: str = ""


_H, _S, _M, _C = Area.HICACHE, Area.STORAGE, Area.MEMORY, Area.CACHE
_P, _K, _R = Area.SCHEDULING, Area.KERNELS, Area.PARALLEL

FLAGS_THAT_MATTER = (
    Meaning("enable-hierarchical-cache", _H, "keeps evicted KV in host memory and loads it back"),
    Meaning("hicache-ratio", _H, "host pool as a multiple of the device pool, in tokens; at least 1 to be of use"),
    Meaning("hicache-size", _H, "host pool of each rank; wins over the ratio", "GB (1e9 bytes)"),
    Meaning("hicache-write-policy", _H, "when KV is copied to the host: at the 1st use, the 2nd use, or at eviction"),
    Meaning("hicache-io-backend", _H, "how KV is copied: by a kernel or by the copy engine"),
    Meaning("hicache-mem-layout", _H, "how the host pool is ordered; some pairs with the io backend are rewritten"),
    Meaning(
        "hicache-host-memory-mode", _H, "0.5.23: `buffer_only` makes the host a staging buffer of the storage tier"
    ),
    Meaning(
        "hicache-host-memory-fraction", _H, "0.5.23: limits the default ratio when no size or ratio is given", "share"
    ),
    Meaning("hicache-storage-backend", _S, "third tier below host memory"),
    Meaning("hicache-storage-prefetch-policy", _S, "how long a request waits for KV from the storage tier"),
    Meaning("hicache-storage-backend-extra-config", _S, "further settings of the storage tier", "JSON or @file"),
    Meaning("hicache-storage-prefetch-retry-poll-interval", _S, "0.5.23: polls between tries of a prefetch", "polls"),
    Meaning("hicache-storage-prefetch-retry-max-attempts", _S, "0.5.23: tries of a prefetch", "tries"),
    Meaning("mem-fraction-static", _M, "weights and KV pool as a share of the free device memory", "share"),
    Meaning("max-total-tokens", _M, "upper limit of the device pool", "tokens"),
    Meaning("kv-cache-dtype", _M, "type of the KV; fp8 holds twice the tokens of bf16 in each pool"),
    Meaning("context-length", _M, "longest prompt with its answer", "tokens"),
    Meaning("cpu-offload-gb", _M, "weights kept in host memory", "GB"),
    Meaning("quantization", _M, "how weights are quantised"),
    Meaning("dtype", _M, "type of weights and activations"),
    Meaning("swa-full-tokens-ratio", _M, "sliding-window pool against the full pool", "share"),
    Meaning("page-size", _C, "tokens of a page: the grain of prefix matching and of copies", "tokens"),
    Meaning("radix-eviction-policy", _C, "which KV goes first; 0.5.23 adds `tlru`, aimed at the tail of TTFT"),
    Meaning("radix-eviction-policy-config", _C, "0.5.23: settings of the eviction policy", "JSON"),
    Meaning("disable-radix-cache", _C, "no prefix cache at all; excludes HiCache"),
    Meaning("enable-session-radix-cache", _C, "keeps sessions apart in the cache; 0.5.15 needs the policy `priority`"),
    Meaning("enable-lmcache", _C, "another cache below the device, in place of HiCache"),
    Meaning("enable-unified-memory", _C, "one pool for all layer kinds; 0.5.15 excludes HiCache"),
    Meaning("schedule-policy", _P, "which waiting request goes first; `lpm` prefers long cached prefixes"),
    Meaning("schedule-conservativeness", _P, "how much KV is held back for running requests", "factor"),
    Meaning("chunked-prefill-size", _P, "largest part of a prompt in one step; -1 turns it off", "tokens"),
    Meaning("max-prefill-tokens", _P, "prompt tokens of one prefill batch", "tokens"),
    Meaning("prefill-max-requests", _P, "requests of one prefill batch", "requests"),
    Meaning("max-running-requests", _P, "requests that run at a time", "requests"),
    Meaning("max-queued-requests", _P, "requests that wait before others are refused", "requests"),
    Meaning("enable-mixed-chunk", _P, "prefill and decode in one step"),
    Meaning("disable-overlap-schedule", _P, "no scheduling while the device computes"),
    Meaning("num-continuous-decode-steps", _P, "decode steps between two looks at the queue", "steps"),
    Meaning("enable-prefill-delayer", _P, "lets prefills of data-parallel ranks wait for each other"),
    Meaning("attention-backend", _K, "attention kernels; some allow few page sizes and rewrite others"),
    Meaning("prefill-attention-backend", _K, "attention kernels of prefill"),
    Meaning("decode-attention-backend", _K, "attention kernels of decode"),
    Meaning(
        "cuda-graph-max-bs-decode", _K, "largest batch that is captured as a graph; costs device memory", "requests"
    ),
    Meaning("disable-cuda-graph", _K, "captures no graphs: slower decode, quicker launch"),
    Meaning("tp-size", _R, "GPUs that one copy of the model is split over; each makes its own host pool", "GPUs"),
    Meaning("dp-size", _R, "copies of the model, or of its attention; each makes its own pools", "copies"),
    Meaning("enable-dp-attention", _R, "data-parallel attention inside the tensor-parallel group"),
)
