"""What SGLang silently makes of a setting: the rewrites, in the order in which it applies them.

Two settings that it rewrites to the same server are one setting; so the rewrites come before Optuna sees a proposal.
[15] is SGLang 0.5.15 `srt/server_args.py`, [23] is 0.5.23 `srt/arg_groups`; no mark is both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.engine.surroundings import FlagValue, Surroundings

if TYPE_CHECKING:
    from harness.engine.setting import IoBackend, MemLayout, Setting

Rewrite = Callable[["Setting", Surroundings], "Setting"]

RATIO = {"cache": 2.0, "buffer_only": 1.2}
"""The default by what the host pool is for; `buffer_only` is of [23] hicache_hook.py:118-122."""
PAGE_FIRST_STORAGE = ("mooncake",)
PAGE_FIRST_STORAGE_LATE = ("mooncake", "npu_memcache")
OWN_DEFAULT_PAGE = ("NemotronH", "MiniMaxM3", "Qwen3VL")
"""Models whose page size, when left out, is not 1 everywhere ([23] model_overrides)."""

PageRule = tuple[str, tuple[int, ...], int]
PAGES_15: Sequence[PageRule] = (
    ("flashmla", (64,), 64),
    ("cutlass_mla", (128,), 128),
    ("trtllm_mla", (32, 64), 64),
    ("tokenspeed_mla", (32, 64), 64),
    ("cutedsl_mla", (32, 64), 64),
    ("trtllm_mha", (16, 32, 64), 64),
)
"""Attention backend, the page sizes that it takes, and what others become: [15] overrides.py:1519-1585."""
PAGES_23: Sequence[PageRule] = (
    ("flashmla", (64,), 64),
    ("trtllm_mla", (32, 64), 64),
    ("cutedsl_mla", (32, 64), 64),
    ("trtllm_mha", (16, 32, 64, 128), 64),
    ("hpc_ops", (64,), 64),
)
"""[23] overrides.py:1142-1199, where trtllm_mha takes 128 too."""
PREFILL_COUNTS = ("cutedsl_mla", "trtllm_mha", "hpc_ops")
"""Backends that fix the page size also when they only do the prefill."""


def rewritten(setting: Setting, around: Surroundings) -> Setting:
    """Return what SGLang would run; `setting` is one that it does not refuse (`refusals`)."""
    for rewrite in REWRITES:
        setting = rewrite(setting, around)
    return setting


def value_of(setting: Setting, around: Surroundings, name: str) -> FlagValue | None:
    """Return the value of an engine flag: the setting's own, or else that of every launch."""
    for own, value in setting.values():
        if own == name:
            return value
    return around.fixed.get(name)


def is_on(setting: Setting, around: Surroundings, name: str) -> bool:
    """Whether a switch is on."""
    return value_of(setting, around, name) is True


def _diffusion_turns_hicache_off(setting: Setting, around: Surroundings) -> Setting:
    """[15] 5989-5993, [23] dllm_hook.py:67-74: with a warning in the log."""
    diffusion = value_of(setting, around, "dllm-algorithm") is not None
    radix_cache = not is_on(setting, around, "disable-radix-cache")
    return setting.model_copy(update={"hicache": False}) if diffusion and radix_cache else setting


def _without_hicache_its_flags_say_nothing(setting: Setting, around: Surroundings) -> Setting:
    """[15] 5348-5353, [23] hicache_hook.py:62-72: nothing of them is read."""
    if setting.hicache:
        return setting
    unused = {name: None for name in type(setting).model_fields if name.startswith("hicache_")}
    extra = {name: value for name, value in setting.extra.items() if not name.startswith("hicache-")}
    return setting.model_copy(update={**unused, "extra": extra})


def _default_ratio(setting: Setting, around: Surroundings) -> Setting:
    """A size wins over any ratio; without both there is a default ratio.

    [23] limits that default by --hicache-host-memory-fraction, and only that: as the ratio is written out, the
    fraction says nothing any more (hicache_hook.py:123-124), and the pool is as large as the table says.
    """
    if not setting.hicache:
        return setting
    extra = {name: value for name, value in setting.extra.items() if name != "hicache-host-memory-fraction"}
    setting = setting.model_copy(update={"extra": extra})
    if setting.hicache_size is not None or setting.hicache_ratio is not None:
        return setting
    return setting.model_copy(update={"hicache_ratio": RATIO.get(_host_mode(setting, around), RATIO["cache"])})


def _write_policy(setting: Setting, around: Surroundings) -> Setting:
    """`buffer_only` has no host tier to write back to: [23] hicache_hook.py:281-289."""
    if not setting.hicache:
        return setting
    policy = setting.hicache_write_policy or "write_through"
    if policy == "write_back" and _host_mode(setting, around) == "buffer_only":
        policy = "write_through"
    return setting.model_copy(update={"hicache_write_policy": policy})


def _transfer(setting: Setting, around: Surroundings) -> Setting:
    """Which pair of io backend and layout really runs; the steps are in SGLang's order."""
    if not setting.hicache:
        return setting
    io_backend, layout = canonical_transfer(setting.hicache_io_backend, setting.hicache_mem_layout)
    if around.platform == "rocm" and not around.is_late and (io_backend, layout) == ("kernel", "page_first"):
        layout = "layer_first"  # [15] 5403-5412: the write-back kernel of page_first is for CUDA alone
    if layout == "layer_first" and _storage(setting, around) in _page_first_storage(around):
        layout = "page_first_direct" if io_backend == "direct" else "page_first"  # [15] 5414-5433, [23] 203-235
    if layout == "page_first_direct" and around.is_late and is_on(setting, around, "enable-unified-memory"):
        io_backend, layout = "kernel", "page_first"  # [23] hicache_hook.py:238-256
    return setting.model_copy(update={"hicache_io_backend": io_backend, "hicache_mem_layout": layout})


def _without_storage_its_flags_say_nothing(setting: Setting, around: Surroundings) -> Setting:
    """How to prefetch from a storage tier matters only where there is one."""
    if not setting.hicache or _storage(setting, around) is not None:
        return setting
    extra = {name: value for name, value in setting.extra.items() if not name.startswith("hicache-storage-")}
    return setting.model_copy(update={"extra": extra})


def _page_size(setting: Setting, around: Surroundings) -> Setting:
    """Some attention backends take few page sizes; what is left out is 1 on CUDA and CPU ([15] overrides.py:1755)."""
    size = setting.page_size
    if size is None:
        return setting
    for backend, sizes, otherwise in PAGES_23 if around.is_late else PAGES_15:
        if backend in _attention_backends(setting, around, prefill=backend in PREFILL_COUNTS) and size not in sizes:
            size = otherwise
    default_is_1 = around.architecture and not around.architecture.startswith(OWN_DEFAULT_PAGE)
    if size == 1 and default_is_1 and around.platform != "rocm" and "page-size" not in around.fixed:
        return setting.model_copy(update={"page_size": None})
    return setting.model_copy(update={"page_size": size})


def _step3p5(setting: Setting, around: Surroundings) -> Setting:
    """With HiCache this model's sliding-window pool is fixed: [15] overrides.py:938-946, [23] overrides.py:351-357."""
    if not setting.hicache or not around.architecture.startswith("Step3p"):
        return setting
    fixed = ("swa-full-tokens-ratio", "disable-hybrid-swa-memory")
    extra = {name: value for name, value in setting.extra.items() if name not in fixed}
    return setting.model_copy(update={"extra": extra})


def _without_what_is_so_anyway(setting: Setting, around: Surroundings) -> Setting:
    """A flag at the engine's default, or as every launch has it, gives the same server as none."""
    base = {**around.defaults, **around.fixed}
    repeated = {name for name, value in setting.values() if name in base and _same(base[name], value)}
    extra = {name: value for name, value in setting.extra.items() if name not in repeated}
    fields = {name.replace("-", "_"): None for name in repeated if name in ("mem-fraction-static", "page-size")}
    return setting.model_copy(update={"extra": extra, **fields})


REWRITES: Sequence[Rewrite] = (
    _diffusion_turns_hicache_off,
    _without_hicache_its_flags_say_nothing,
    _default_ratio,
    _write_policy,
    _transfer,
    _without_storage_its_flags_say_nothing,
    _page_size,
    _step3p5,
    _without_what_is_so_anyway,
)


def canonical_transfer(io_backend: IoBackend | None, layout: MemLayout | None) -> tuple[IoBackend, MemLayout]:
    """Return the pair of io backend and memory layout that SGLang would really use ([15] 5381-5398, [23] 176-200)."""
    io_backend, layout = io_backend or "kernel", layout or "page_first"
    if layout == "page_first_direct" and io_backend == "kernel":
        return "direct", "page_first_direct"
    if layout == "page_first" and io_backend == "direct":
        return "direct", "page_first_direct"
    return io_backend, layout


def _host_mode(setting: Setting, around: Surroundings) -> str:
    mode = value_of(setting, around, "hicache-host-memory-mode") if around.is_late else None
    return str(mode or "cache")


def _storage(setting: Setting, around: Surroundings) -> FlagValue | None:
    return value_of(setting, around, "hicache-storage-backend")


def _page_first_storage(around: Surroundings) -> tuple[str, ...]:
    return PAGE_FIRST_STORAGE_LATE if around.is_late else PAGE_FIRST_STORAGE


def _attention_backends(setting: Setting, around: Surroundings, *, prefill: bool) -> list[FlagValue | None]:
    names = ["attention-backend", "decode-attention-backend"]
    if prefill:
        names.append("prefill-attention-backend")
    return [value_of(setting, around, name) for name in names]


def _same(one: FlagValue, other: FlagValue) -> bool:
    """Compare as the engine reads them; values fixed by the user are text."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other or str(one) == str(other) or _number(one) == _number(other) is not None


def _number(value: FlagValue) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
