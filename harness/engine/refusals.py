"""What SGLang refuses to start with, known before it is launched.

Each refusal costs a launch of 13-30 s to be told by SGLang itself. [15] is SGLang 0.5.15 `srt/server_args.py`,
[23] is 0.5.23 `srt/arg_groups`; no mark is both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from harness.engine.rewrites import is_on, value_of
from harness.engine.setting import Setting
from harness.engine.surroundings import FlagValue, Surroundings

ALONE = (
    ("disable-radix-cache", "both"),
    ("enable-int8-mamba-checkpoint", "both"),
    ("enable-unified-memory", "0.5.15"),
    ("enable-lmcache", "0.5.23"),
    ("enable-unified-cache-external-linker", "0.5.23"),
)
"""Switches that exclude HiCache: [15] 5772, 4645, 5893; [23] kv_cache_hook.py:393 and 434, mamba_hook.py:83,
hicache_hook.py:45-62."""


def refusals(setting: Setting, around: Surroundings) -> Iterator[str]:
    """Yield why SGLang would not start with `setting`; nothing when no rule known here speaks against it."""
    yield from _page_size(setting, around)
    yield from _eviction_policy(setting, around)
    if setting.hicache:
        yield from _excluded(setting, around)
        yield from _storage(setting, around)
        if around.is_late:
            yield from _decode_context_parallel(setting, around)


def _excluded(setting: Setting, around: Surroundings) -> Iterator[str]:
    late = "0.5.23" if around.is_late else "0.5.15"
    for name, version in ALONE:
        if version in ("both", late) and is_on(setting, around, name):
            yield f"HiCache and --{name} exclude each other"


def _storage(setting: Setting, around: Surroundings) -> Iterator[str]:
    backend = value_of(setting, around, "hicache-storage-backend")
    if around.is_late and value_of(setting, around, "hicache-host-memory-mode") == "buffer_only" and backend is None:
        yield "--hicache-host-memory-mode buffer_only needs --hicache-storage-backend"  # [23] hicache_hook.py:270
    if around.is_late and backend is not None and is_on(setting, around, "enable-kv-cache-sharding"):
        yield "--enable-kv-cache-sharding and a storage tier exclude each other"  # [23] kv_shard_hook.py:176


def _decode_context_parallel(setting: Setting, around: Surroundings) -> Iterator[str]:
    """[23] hicache_hook.py:129-172."""
    width = _number(value_of(setting, around, "dcp-size"))
    if width is None or width <= 1:
        return
    if around.uses_mla is False:
        yield "HiCache with --dcp-size above 1 is for MLA models"
    if value_of(setting, around, "speculative-algorithm") not in (None, "DSPARK"):
        yield "HiCache with --dcp-size above 1 takes no --speculative-algorithm but DSPARK"
    if is_on(setting, around, "enable-hisparse"):
        yield "HiCache with --dcp-size above 1 and --enable-hisparse exclude each other"
    storage = value_of(setting, around, "hicache-storage-backend")
    if storage is not None and value_of(setting, around, "hicache-host-memory-mode") == "buffer_only":
        yield "--hicache-host-memory-mode buffer_only and --dcp-size above 1 exclude each other"


def _page_size(setting: Setting, around: Surroundings) -> Iterator[str]:
    """[15] 6610-6613. The chunk that SGLang chooses itself is a power of two of 2048 or more."""
    page = _number(value_of(setting, around, "page-size"))
    chunk = _number(value_of(setting, around, "chunked-prefill-size"))
    if page is not None and (chunk is None or chunk > 0) and (chunk or 2048) % page:
        chosen = f"{chunk:g}" if chunk else "SGLang's own"
        yield f"--page-size {page:g} does not divide the chunk of prefills ({chosen}), so no page would fit into it"


def _eviction_policy(setting: Setting, around: Surroundings) -> Iterator[str]:
    policy = value_of(setting, around, "radix-eviction-policy")
    if not around.is_late:
        if is_on(setting, around, "enable-session-radix-cache") and policy != "priority":
            yield "--enable-session-radix-cache needs --radix-eviction-policy priority"  # [15] 5766-5769
        return
    if policy == "tlru":
        config = _json(value_of(setting, around, "radix-eviction-policy-config"))
        threshold, estimate = (_number(config.get(key, 0)) for key in ("threshold", "next_prompt_estimate"))
        if threshold is None or estimate is None or estimate < 0 or threshold <= estimate:  # [23] kv_cache_hook.py:375
            yield "--radix-eviction-policy tlru needs a `threshold` above `next_prompt_estimate` in its config"


def _json(value: FlagValue | None) -> dict[str, FlagValue]:
    try:
        found = json.loads(str(value or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: FlagValue | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None
