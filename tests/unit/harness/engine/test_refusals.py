"""What SGLang refuses to start with, one row for each fact."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine.refusals import refusals
from harness.engine.setting import Setting
from harness.engine.surroundings import FlagValue, Surroundings

EARLY, LATE = (0, 5, 15), (0, 5, 23)
ON, OFF = Setting(hicache=True), Setting()
TLRU: dict[str, FlagValue] = {"radix-eviction-policy": "tlru"}
DCP: dict[str, FlagValue] = {"dcp-size": "2"}

ROWS: list[tuple[str, Setting, tuple[int, ...], dict[str, FlagValue], str | None]] = [
    ("5772", ON, EARLY, {"disable-radix-cache": True}, "HiCache and --disable-radix-cache exclude each other"),
    ("kv_cache_hook.py:393", ON, LATE, {"disable-radix-cache": True}, "exclude each other"),
    ("without HiCache the radix cache may be off", OFF, EARLY, {"disable-radix-cache": True}, None),
    ("4645", ON, EARLY, {"enable-int8-mamba-checkpoint": True}, "exclude each other"),
    ("mamba_hook.py:83", ON, LATE, {"enable-int8-mamba-checkpoint": True}, "exclude each other"),
    ("5893", ON, EARLY, {"enable-unified-memory": True}, "exclude each other"),
    ("hicache_hook.py:238: rewritten, not refused", ON, LATE, {"enable-unified-memory": True}, None),
    ("kv_cache_hook.py:434", ON, LATE, {"enable-lmcache": True}, "exclude each other"),
    ("no such check in 0.5.15", ON, EARLY, {"enable-lmcache": True}, None),
    ("hicache_hook.py:45-62", ON, LATE, {"enable-unified-cache-external-linker": True}, "exclude each other"),
    ("hicache_hook.py:270", ON, LATE, {"hicache-host-memory-mode": "buffer_only"}, "needs --hicache-storage-backend"),
    (
        "hicache_hook.py:270: with a storage tier it works",
        ON,
        LATE,
        {"hicache-host-memory-mode": "buffer_only", "hicache-storage-backend": "file"},
        None,
    ),
    (
        "kv_shard_hook.py:176",
        ON,
        LATE,
        {"enable-kv-cache-sharding": True, "hicache-storage-backend": "file"},
        "--enable-kv-cache-sharding and a storage tier",
    ),
    ("hicache_hook.py:129-172", ON, LATE, {**DCP, "speculative-algorithm": "EAGLE"}, "but DSPARK"),
    ("hicache_hook.py:129-172", ON, LATE, {**DCP, "speculative-algorithm": "DSPARK"}, None),
    ("hicache_hook.py:129-172", ON, LATE, {**DCP, "enable-hisparse": True}, "--enable-hisparse"),
    (
        "hicache_hook.py:134-140",
        ON,
        LATE,
        {**DCP, "hicache-host-memory-mode": "buffer_only", "hicache-storage-backend": "file"},
        "buffer_only and --dcp-size",
    ),
    ("one rank is no group", ON, LATE, {"dcp-size": "1", "speculative-algorithm": "EAGLE"}, None),
    ("absent in 0.5.15", ON, EARLY, {**DCP, "speculative-algorithm": "EAGLE"}, None),
    ("6610-6613", Setting(page_size=48), EARLY, {"chunked-prefill-size": "2048"}, "--page-size 48 does not divide"),
    ("6610-6613: chunks are powers of two by default", Setting(page_size=48), EARLY, {}, "(SGLang's own)"),
    ("6610-6613: no chunks, no rule", Setting(page_size=48), EARLY, {"chunked-prefill-size": "-1"}, None),
    ("6610-6613", Setting(page_size=64), LATE, {"chunked-prefill-size": "8192"}, None),
    ("6610-6613: both may be fixed", OFF, LATE, {"chunked-prefill-size": "100", "page-size": "64"}, "does not divide"),
    ("5766-5769", OFF, EARLY, {"enable-session-radix-cache": True}, "needs --radix-eviction-policy priority"),
    (
        "5766-5769",
        OFF,
        EARLY,
        {"enable-session-radix-cache": True, "radix-eviction-policy": "priority"},
        None,
    ),
    ("kv_cache_hook.py:375-391", OFF, LATE, TLRU, "needs a `threshold` above `next_prompt_estimate`"),
    (
        "kv_cache_hook.py:375-391",
        OFF,
        LATE,
        {**TLRU, "radix-eviction-policy-config": '{"threshold": 10, "next_prompt_estimate": 3}'},
        None,
    ),
    (
        "kv_cache_hook.py:375-391",
        OFF,
        LATE,
        {**TLRU, "radix-eviction-policy-config": '{"threshold": 3, "next_prompt_estimate": 3}'},
        "needs a `threshold`",
    ),
    ("a config that is no JSON has no threshold", OFF, LATE, {**TLRU, "radix-eviction-policy-config": "["}, "needs a"),
]


@pytest.mark.parametrize(("fact", "setting", "version", "fixed", "said"), ROWS)
def test_what_is_refused(
    fact: str, setting: Setting, version: tuple[int, ...], fixed: dict[str, FlagValue], said: str | None
) -> None:
    """Each rule of the sources speaks where it holds, and nowhere else."""
    found = list(refusals(setting, Surroundings(version=version, fixed=fixed)))
    if said is None:
        assert found == [], fact
    else:
        assert len(found) == 1, fact
        assert said in found[0]


def test_decode_context_parallel_is_for_mla() -> None:
    """A model with heads has no index translation; one that is not at hand is not refused."""
    for uses_mla, refused in ((False, True), (True, False), (None, False)):
        around = Surroundings(version=LATE, fixed={"dcp-size": "2"}, uses_mla=uses_mla)
        assert bool(list(refusals(ON, around))) is refused


def test_a_setting_s_own_flag_counts() -> None:
    """What a setting varies is looked at before what is fixed."""
    extra: dict[str, Any] = {"disable-radix-cache": True}
    assert list(refusals(Setting(hicache=True, extra=extra), Surroundings()))
