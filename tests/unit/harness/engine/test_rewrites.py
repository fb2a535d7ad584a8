"""The rewrites of SGLang, one row for each fact: what is asked, around what, and what runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.flag_source import shipped
from harness.engine.setting import Setting
from harness.engine.surroundings import FlagValue, Surroundings

EARLY, LATE = (0, 5, 15), (0, 5, 23)
QWEN = "Qwen2ForCausalLM"


def around(version: tuple[int, ...], fixed: dict[str, FlagValue] | None = None, **more: Any) -> Surroundings:
    """Describe what is the same for all settings."""
    return Surroundings(version=version, fixed=fixed or {}, **more)


def on(**values: Any) -> Setting:
    """Make a setting with HiCache on; names with dashes are further flags."""
    extra = {name.replace("_", "-"): values.pop(name) for name in list(values) if name not in Setting.model_fields}
    return Setting(hicache=True, **values, extra=extra)


STORAGE = "hicache-storage-backend"
BUFFER: dict[str, FlagValue] = {"hicache-host-memory-mode": "buffer_only", STORAGE: "file"}

ROWS: list[tuple[str, Setting, Surroundings, dict[str, Any]]] = [
    # fact (server_args.py of 0.5.15 or arg_groups of 0.5.23), asked, around, what runs of it
    (
        "5381-5389 and hicache_hook.py:176-190: page_first_direct takes the direct backend",
        on(hicache_io_backend="kernel", hicache_mem_layout="page_first_direct"),
        around(EARLY),
        {"hicache_io_backend": "direct", "hicache_mem_layout": "page_first_direct"},
    ),
    (
        "the same in 0.5.23",
        on(hicache_io_backend="kernel", hicache_mem_layout="page_first_direct"),
        around(LATE),
        {"hicache_io_backend": "direct", "hicache_mem_layout": "page_first_direct"},
    ),
    (
        "5391-5398 and hicache_hook.py:192-200: page_first with direct becomes page_first_direct",
        on(hicache_io_backend="direct", hicache_mem_layout="page_first"),
        around(LATE),
        {"hicache_io_backend": "direct", "hicache_mem_layout": "page_first_direct"},
    ),
    (
        "5403-5412: page_first on ROCm",
        on(),
        around(EARLY, platform="rocm"),
        {"hicache_io_backend": "kernel", "hicache_mem_layout": "layer_first"},
    ),
    (
        "not in hicache_hook: 0.5.23 keeps page_first on ROCm",
        on(),
        around(LATE, platform="rocm"),
        {"hicache_mem_layout": "page_first"},
    ),
    (
        "5414-5433: mooncake with layer_first and kernel",
        on(hicache_mem_layout="layer_first"),
        around(EARLY, {STORAGE: "mooncake"}),
        {"hicache_io_backend": "kernel", "hicache_mem_layout": "page_first"},
    ),
    (
        "hicache_hook.py:203-235: mooncake with layer_first and direct",
        on(hicache_mem_layout="layer_first", hicache_io_backend="direct"),
        around(LATE, {STORAGE: "mooncake"}),
        {"hicache_io_backend": "direct", "hicache_mem_layout": "page_first_direct"},
    ),
    (
        "hicache_hook.py:203-235: npu_memcache too in 0.5.23",
        on(hicache_mem_layout="layer_first"),
        around(LATE, {STORAGE: "npu_memcache"}),
        {"hicache_mem_layout": "page_first"},
    ),
    (
        "5414: no other storage moves the layout",
        on(hicache_mem_layout="layer_first"),
        around(EARLY, {STORAGE: "file"}),
        {"hicache_mem_layout": "layer_first"},
    ),
    (
        "hicache_hook.py:238-256: the unified pool is copied by the kernel",
        on(hicache_io_backend="direct"),
        around(LATE, {"enable-unified-memory": True}),
        {"hicache_io_backend": "kernel", "hicache_mem_layout": "page_first"},
    ),
    ("section 1a: the ratio is 2 by default", on(), around(EARLY), {"hicache_ratio": 2.0, "hicache_size": None}),
    ("hicache_hook.py:118-122: also in 0.5.23", on(), around(LATE), {"hicache_ratio": 2.0}),
    ("hicache_hook.py:118-122: 1.2 for a staging buffer", on(), around(LATE, BUFFER), {"hicache_ratio": 1.2}),
    (
        "pool_host/base.py:101-106: a size wins over any ratio",
        on(hicache_size=60),
        around(LATE),
        {"hicache_ratio": None, "hicache_size": 60},
    ),
    (
        "hicache_hook.py:123-124: a fraction says nothing beside a ratio",
        on(hicache_ratio=3, hicache_host_memory_fraction=0.5),
        around(LATE),
        {"hicache_ratio": 3, "extra": {}},
    ),
    (
        "hicache_hook.py:281-289: a staging buffer has nothing to write back to",
        on(hicache_write_policy="write_back"),
        around(LATE, BUFFER),
        {"hicache_write_policy": "write_through"},
    ),
    (
        "0.5.15 has no staging buffer",
        on(hicache_write_policy="write_back"),
        around(EARLY, BUFFER),
        {"hicache_write_policy": "write_back"},
    ),
    ("section 1a: write_through by default", on(), around(EARLY), {"hicache_write_policy": "write_through"}),
    (
        "5989-5993 and dllm_hook.py:67-74: diffusion turns HiCache off",
        on(hicache_size=60),
        around(EARLY, {"dllm-algorithm": "LowConfidence"}),
        {"hicache": False, "hicache_size": None},
    ),
    (
        "section 1a: prefetching matters only with a storage tier",
        on(hicache_storage_prefetch_policy="best_effort"),
        around(EARLY),
        {"extra": {}},
    ),
    (
        "section 1a: with one it stays",
        on(hicache_storage_prefetch_policy="best_effort"),
        around(EARLY, {STORAGE: "file"}),
        {"extra": {"hicache-storage-prefetch-policy": "best_effort"}},
    ),
    (
        "section 1b: without HiCache none of its flags is read",
        Setting(hicache_size=60, extra={"hicache-storage-backend": "file", "schedule-policy": "lpm"}),
        around(EARLY),
        {"hicache_size": None, "extra": {"schedule-policy": "lpm"}},
    ),
    (
        "overrides.py:938-946 and 351-357: Step3p5 fixes its sliding window",
        on(swa_full_tokens_ratio=0.5, disable_hybrid_swa_memory=False),
        around(LATE, architecture="Step3p5ForCausalLM"),
        {"extra": {}},
    ),
    (
        "overrides.py:1775: the page is 1 when it is left out",
        Setting(page_size=1),
        around(EARLY, architecture=QWEN),
        {"page_size": None},
    ),
    (
        "a model that is not at hand may have another page by default",
        Setting(page_size=1),
        around(EARLY),
        {"page_size": 1},
    ),
    (
        "model_overrides/nemotron_h.py:131: this one has",
        Setting(page_size=1),
        around(LATE, architecture="NemotronHForCausalLM"),
        {"page_size": 1},
    ),
    (
        "a page that every launch fixes is undone by 1",
        Setting(page_size=1),
        around(EARLY, {"page-size": "64"}, architecture=QWEN),
        {"page_size": 1},
    ),
    (
        "section 1a: what repeats a default of the parser is left out",
        Setting(extra={"schedule-policy": "fcfs", "schedule-conservativeness": 1}),
        around(EARLY, defaults={"schedule-policy": "fcfs", "schedule-conservativeness": 1.0}),
        {"extra": {}},
    ),
    (
        "a default that undoes what every launch fixes stays",
        Setting(extra={"schedule-policy": "fcfs"}),
        around(EARLY, {"schedule-policy": "lpm"}, defaults={"schedule-policy": "fcfs"}),
        {"extra": {"schedule-policy": "fcfs"}},
    ),
    (
        "what every launch has anyway is left out",
        Setting(mem_fraction_static=0.12, page_size=64, extra={"schedule-policy": "lpm"}),
        around(EARLY, {"schedule-policy": "lpm", "mem-fraction-static": "0.12", "page-size": "64"}),
        {"mem_fraction_static": None, "page_size": None, "extra": {}},
    ),
]

PAGES = [
    # overrides.py:1519-1585 of 0.5.15, 1142-1199 of 0.5.23
    (EARLY, "flashmla", 16, 64),
    (EARLY, "cutlass_mla", 64, 128),
    (EARLY, "trtllm_mla", 16, 64),
    (EARLY, "trtllm_mla", 32, 32),
    (EARLY, "tokenspeed_mla", 128, 64),
    (EARLY, "cutedsl_mla", 1, 64),
    (EARLY, "trtllm_mha", 1, 64),
    (EARLY, "trtllm_mha", 16, 16),
    (EARLY, "trtllm_mha", 128, 64),
    (EARLY, "fa3", 48, 48),
    (EARLY, "hpc_ops", 16, 16),
    (LATE, "trtllm_mha", 128, 128),
    (LATE, "trtllm_mha", 256, 64),
    (LATE, "hpc_ops", 16, 64),
    (LATE, "flashmla", 128, 64),
    (LATE, "cutlass_mla", 64, 64),
]


@pytest.mark.parametrize(("fact", "asked", "surroundings", "runs"), ROWS, ids=[row[0] for row in ROWS])
def test_what_runs(fact: str, asked: Setting, surroundings: Surroundings, runs: dict[str, Any]) -> None:
    """The canonical form is what SGLang makes of the flags, and stays so when it is made again."""
    found = asked.canonical(surroundings)
    assert {name: getattr(found, name) for name in runs} == runs, fact
    assert found.canonical(surroundings) == found
    assert found.canonical().key == found.key


@pytest.mark.parametrize(("version", "backend", "asked", "runs"), PAGES)
def test_attention_backends_fix_the_page(version: tuple[int, ...], backend: str, asked: int, runs: int) -> None:
    """A backend rewrites page sizes that it does not take, also when it only decodes, and when a setting names it."""
    fixed = around(version, {"attention-backend": backend})
    decodes = around(version, {"attention-backend": "fa3", "decode-attention-backend": backend})
    assert Setting(page_size=asked).canonical(fixed).page_size == runs
    assert Setting(page_size=asked).canonical(decodes).page_size == runs
    varied = Setting(page_size=asked, extra={"attention-backend": backend})
    assert varied.canonical(around(version)).page_size == runs


def test_only_some_backends_fix_the_page_by_prefill() -> None:
    """flashmla for the prefill alone leaves the page; trtllm_mha does not."""
    prefill = {name: around(EARLY, {"prefill-attention-backend": name}) for name in ("flashmla", "trtllm_mha")}
    assert Setting(page_size=8).canonical(prefill["flashmla"]).page_size == 8
    assert Setting(page_size=8).canonical(prefill["trtllm_mha"]).page_size == 64


def test_the_defaults_of_the_parser_fold_settings() -> None:
    """With the flags of 0.5.15, the baseline and its spelled-out twin are one setting, so it is measured once."""
    defaults = {flag.name: flag.default for flag in shipped("0.5.15").flags if flag.default is not None}
    surroundings = around(EARLY, defaults=defaults, architecture=QWEN)
    spelled = on(
        hicache_ratio=2.0,
        hicache_write_policy="write_through",
        hicache_io_backend="kernel",
        hicache_mem_layout="page_first",
        page_size=1,
        schedule_policy="fcfs",
        radix_eviction_policy="lru",
    )
    assert spelled.canonical(surroundings) == Setting(hicache=True).canonical(surroundings)
    assert spelled.canonical(surroundings).key == Setting(hicache=True).canonical().key


settings = st.builds(
    Setting,
    hicache=st.booleans(),
    hicache_ratio=st.none() | st.floats(1, 9),
    hicache_write_policy=st.sampled_from([None, "write_through", "write_through_selective", "write_back"]),
    hicache_io_backend=st.sampled_from([None, "kernel", "direct"]),
    hicache_mem_layout=st.sampled_from([None, "layer_first", "page_first", "page_first_direct", "page_head"]),
    mem_fraction_static=st.none() | st.sampled_from([0.12, 0.5, 0.88]),
    page_size=st.none() | st.sampled_from([1, 16, 32, 64, 128]),
    extra=st.dictionaries(
        st.sampled_from(["schedule-policy", "hicache-storage-prefetch-policy", "attention-backend"]),
        st.sampled_from(["fcfs", "lpm", "trtllm_mha", "timeout"]),
    ),
)
surroundings = st.builds(
    Surroundings,
    version=st.sampled_from([EARLY, (0, 5, 19), LATE]),
    platform=st.sampled_from(["cuda", "rocm", "cpu"]),
    fixed=st.dictionaries(
        st.sampled_from(
            [STORAGE, "hicache-host-memory-mode", "page-size", "attention-backend", "enable-unified-memory"]
        ),
        st.sampled_from(["mooncake", "buffer_only", "64", "trtllm_mha", True]),
    ),
    defaults=st.just({"schedule-policy": "fcfs"}),
    architecture=st.sampled_from(["", QWEN, "Step3p5ForCausalLM"]),
)


@given(settings, surroundings)
def test_canonical_is_stable(setting: Setting, surroundings: Surroundings) -> None:
    """Canonical twice is canonical once, and neither the draft's nor the key's plain form changes it again."""
    once = setting.canonical(surroundings)
    assert once.canonical(surroundings) == once
    assert once.canonical().key == once.key
    Setting.model_validate(once.model_dump())
