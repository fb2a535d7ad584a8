"""Settings: what SGLang would really run, and the flags, key and label of it."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.setting import IoBackend, MemLayout, Setting, canonical_transfer
from harness.errors import ConfigError
from tests.support.cases import case_folder

RATIOS = st.floats(1, 16).map(lambda ratio: round(ratio, 2))
EXTRA = st.dictionaries(
    st.sampled_from(["chunked-prefill-size", "schedule-policy", "disable-overlap-schedule", "hicache-storage-backend"]),
    st.booleans() | st.integers(1, 9999) | st.sampled_from(["lpm", "file"]),
    max_size=3,
)


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    """Draw any valid setting."""
    size = draw(st.none() | st.integers(1, 500))
    return Setting(
        hicache=draw(st.booleans()),
        hicache_size=size,
        hicache_ratio=draw(st.none() | RATIOS) if size is None else None,
        hicache_write_policy=draw(
            st.sampled_from([None, "write_through", "write_through_selective", "write_back"]),
        ),
        hicache_io_backend=draw(st.sampled_from([None, "kernel", "direct"])),
        hicache_mem_layout=draw(
            st.sampled_from([None, "layer_first", "page_first", "page_first_direct", "page_head"]),
        ),
        mem_fraction_static=draw(st.none() | st.sampled_from([0.1, 0.5, 0.88])),
        page_size=draw(st.none() | st.sampled_from([1, 16, 64])),
        extra=draw(EXTRA),
    )


@given(settings())
def test_canonical_is_idempotent(setting: Setting) -> None:
    """What SGLang would run is what it runs when asked for it, and keeps key and label."""
    canonical = setting.canonical()
    assert canonical.canonical() == canonical
    assert canonical.key == setting.key
    assert Setting.parse(json.loads(canonical.model_dump_json()), where="x") == canonical


@given(settings(), settings())
def test_the_key_stands_for_the_flags(one: Setting, other: Setting) -> None:
    """Two settings have one key exactly when they give one command line."""
    same = list(one.canonical().flags()) == list(other.canonical().flags())
    assert (one.key == other.key) is same
    # Written out, because to Python 1 and True are equal: one is `--flag 1`, the other `--flag`.
    assert one.canonical().model_dump_json() != other.canonical().model_dump_json() or same


def test_true_is_not_one() -> None:
    """A flag that stands alone and the same flag with a value are two settings."""
    assert Setting(extra={"a": True}).key != Setting(extra={"a": 1}).key
    assert Setting(extra={"a": False}).key == Setting().key


@given(settings())
def test_off_has_no_hicache_flag(setting: Setting) -> None:
    """Without HiCache none of its flags is given, not even among the extra ones, and all of them are one setting."""
    off = setting.model_copy(update={"hicache": False}).canonical()
    assert not [flag for flag in off.flags() if flag.startswith(("--hicache", "--enable-hierarchical"))]
    plain = Setting(mem_fraction_static=off.mem_fraction_static, page_size=off.page_size, extra=off.extra)
    assert off.key == plain.key


@given(settings())
def test_on_names_every_hicache_flag(setting: Setting) -> None:
    """With HiCache all that a newer SGLang could choose by itself is said: size, policy, backend and layout."""
    on = setting.model_copy(update={"hicache": True}).canonical()
    flags = list(on.flags())
    assert flags[0] == "--enable-hierarchical-cache"
    assert ("--hicache-size" in flags) is not ("--hicache-ratio" in flags)
    assert {"--hicache-write-policy", "--hicache-io-backend", "--hicache-mem-layout"} < set(flags)


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        ((None, None), ("kernel", "page_first")),
        (("kernel", "page_first_direct"), ("direct", "page_first_direct")),
        ((None, "page_first_direct"), ("direct", "page_first_direct")),
        (("direct", "page_first"), ("direct", "page_first_direct")),
        (("direct", None), ("direct", "page_first_direct")),
        (("direct", "layer_first"), ("direct", "layer_first")),
        (("kernel", "layer_first"), ("kernel", "layer_first")),
        (("kernel", "page_head"), ("kernel", "page_head")),
    ],
)
def test_pairs_that_sglang_rewrites(
    asked: tuple[IoBackend | None, MemLayout | None], runs: tuple[IoBackend, MemLayout]
) -> None:
    """Backend and layout become the pair that SGLang runs instead."""
    assert canonical_transfer(*asked) == runs
    setting = Setting(hicache=True, hicache_io_backend=asked[0], hicache_mem_layout=asked[1])
    assert setting.key == Setting(hicache=True, hicache_io_backend=runs[0], hicache_mem_layout=runs[1]).key


def test_three_layouts_make_four_servers() -> None:
    """Of the six pairs of backend and layout only four differ."""
    backends: tuple[IoBackend, ...] = ("kernel", "direct")
    layouts: tuple[MemLayout, ...] = ("layer_first", "page_first", "page_first_direct")
    assert len({canonical_transfer(*pair) for pair in product(backends, layouts)}) == 4


def test_defaults_are_the_same_setting() -> None:
    """HiCache at its defaults is HiCache at ratio 2 with write_through."""
    spelled = Setting(hicache=True, hicache_ratio=2, hicache_write_policy="write_through")
    assert Setting(hicache=True).key == spelled.key
    assert Setting(hicache=True, hicache_size=2).key != spelled.key
    assert Setting().key == Setting(hicache_ratio=8).key


def test_flags_are_in_order() -> None:
    """Flags come in the order of the fields, then the extra ones by name; True stands alone, False is left out."""
    setting = Setting(
        hicache=True,
        hicache_size=60,
        hicache_write_policy="write_back",
        mem_fraction_static=0.88,
        page_size=64,
        extra={"schedule-policy": "lpm", "disable-overlap-schedule": True, "a-flag": False, "b-size": 7},
    )
    assert list(setting.flags()) == [
        "--enable-hierarchical-cache",
        *("--hicache-size", "60"),
        *("--hicache-write-policy", "write_back"),
        *("--mem-fraction-static", "0.88"),
        *("--page-size", "64"),
        *("--b-size", "7"),
        "--disable-overlap-schedule",
        *("--schedule-policy", "lpm"),
    ]
    assert list(Setting().flags()) == []


@pytest.mark.contract
def test_ratio_below_one_is_refused() -> None:
    """Case 47: a host pool smaller than the device pool is useless, and some versions refuse it."""
    space = json.loads((case_folder("47") / "space.json").read_text())
    for ratio in space["search"]["hicache_ratio"]:
        asked = {"hicache": True, "hicache_ratio": ratio}
        if ratio < 1:
            with pytest.raises(ConfigError, match=r"hicache_ratio is 0\.5; .* give 1 or more"):
                Setting.parse(asked, where="setting")
        else:
            assert Setting.parse(asked, where="setting").hicache_ratio == ratio


def test_size_and_ratio_are_refused_together() -> None:
    """Case 47: SGLang would ignore the ratio, so a search over it would turn a dead knob."""
    space = json.loads((case_folder("47") / "space.json").read_text())
    both = {"hicache": True, **space["fixed"], "hicache_ratio": space["search"]["hicache_ratio"][0]}
    with pytest.raises(ConfigError, match="hicache_size and hicache_ratio are both set; SGLang would ignore the ratio"):
        Setting.parse(both, where="space")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"hicache_sizes": 3}, "unknown key `hicache_sizes`; did you mean `hicache_size`"),
        ({"hicache_size": 1.5}, "`hicache_size`"),
        ({"hicache_ratio": 0}, "`hicache_ratio`"),
        ({"mem_fraction_static": 1.0}, "`mem_fraction_static`"),
        ({"hicache_write_policy": "write_around"}, "`hicache_write_policy`"),
    ],
)
def test_bad_settings_are_refused(data: dict[str, object], said: str) -> None:
    """A misspelled name or an impossible value fails with the key at fault."""
    with pytest.raises(ConfigError, match=said):
        Setting.parse(data, where="setting")


@pytest.mark.parametrize(
    ("setting", "label"),
    [
        (Setting(), "HiCache off"),
        (Setting(hicache=True), "HiCache ratio 2"),
        (Setting(hicache=True).canonical(), "HiCache ratio 2, write_through, kernel/page_first"),
        (Setting(hicache=True, hicache_size=60, mem_fraction_static=0.5), "HiCache 60 GB, fraction 0.5"),
        (Setting(hicache=True, hicache_io_backend="direct"), "HiCache ratio 2, direct/page_first_direct"),
        (Setting(page_size=16, extra={"b": 1, "a": "x"}), "HiCache off, page 16, a x, b 1"),
    ],
)
def test_labels(setting: Setting, label: str) -> None:
    """A label names what is set, and the pair that really runs."""
    assert setting.label == label
