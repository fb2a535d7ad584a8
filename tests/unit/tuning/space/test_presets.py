"""The spaces that need no flags."""

from __future__ import annotations

import pytest

from harness.engine.cpu.engine import BASE_FLAGS
from harness.engine.flag_source import shipped
from harness.engine.flags import check_flag, split_arguments
from harness.engine.refusals import refusals
from harness.engine.setting import Setting
from harness.engine.surroundings import Surroundings
from tests.support.spaces import drawn
from tuning.space import DEFAULT_PRESET, SGLANG_DEFAULT, TRANSFER, Engine, Preset, preset_space

OF_HICACHE = ["hicache", "hicache_ratio", "hicache_write_policy", "transfer"]
OF_MEMORY = ["mem_fraction_static", "page_size"]
FURTHER = ["chunked-prefill-size", "schedule-policy", "radix-eviction-policy", "kv-cache-dtype"]
OF_STORAGE = ["hicache-storage-backend", "hicache-storage-prefetch-policy"]


@pytest.mark.parametrize(
    ("engine", "preset", "names"),
    [
        ("local", "hicache", OF_HICACHE),
        ("docker", "hicache+memory", OF_HICACHE + OF_MEMORY),
        ("attach", "full", OF_HICACHE + OF_MEMORY + FURTHER + OF_STORAGE),
        ("cpu", "hicache", OF_HICACHE),
        ("cpu", "full", OF_HICACHE + OF_MEMORY + FURTHER[:-1] + OF_STORAGE),
    ],
)
def test_a_preset_grows_with_its_name(engine: Engine, preset: Preset, names: list[str]) -> None:
    """HiCache alone, then with what shares its memory, then all; the CPU engine has one type of KV."""
    assert sorted(dimension.name for dimension in preset_space(engine, preset).dimensions) == sorted(names)


def test_the_default_preset_is_what_was_searched_before_there_were_any() -> None:
    """A study of before goes on: the same flags in the same order, over the same values."""
    assert DEFAULT_PRESET == "hicache+memory"
    assert [(d.name, d.values_text) for d in preset_space("local").dimensions][:4] == [
        ("hicache", "off,on"),
        ("mem_fraction_static", "0.7:0.92:0.02"),
        ("page_size", "1,16,32,64"),
        ("hicache_ratio", "1.5:6:0.5"),
    ]
    cpu = preset_space("cpu")
    assert [d.values_text for d in cpu.dimensions if d.name in OF_MEMORY] == ["0.84:0.92:0.02", "16,32"]


@pytest.mark.parametrize("version", ["0.5.15", "0.5.23"])
@pytest.mark.parametrize("engine", ["local", "cpu"])
def test_every_sglang_has_what_a_preset_searches(engine: Engine, version: str) -> None:
    """Each flag and each value is in the parser of both versions."""
    table = shipped(version)
    for dimension in preset_space(engine, "full").dimensions:
        if dimension.name not in Setting.model_fields and dimension.name != TRANSFER:
            for value in set(dimension.choices) - {SGLANG_DEFAULT}:
                check_flag(dimension.name, value, table, where="full")


@pytest.mark.parametrize("engine", ["local", "cpu"])
def test_no_proposal_of_a_preset_is_one_that_sglang_refuses(engine: Engine) -> None:
    """Every page divides every chunk, and no policy asks for what is not given."""
    fixed = {flag.name: flag.value for flag in split_arguments(BASE_FLAGS)} if engine == "cpu" else {}
    for version in ((0, 5, 15), (0, 5, 23)):
        around = Surroundings(version=version, fixed=fixed)
        for seed in range(200):
            setting, _ = drawn(preset_space(engine, "full"), seed)
            assert list(refusals(setting.canonical(around), around)) == []


def test_the_cpu_engine_stores_over_the_pair_that_is_known_to_work() -> None:
    """`tests/live/test_storage.py` measures it over that pair alone."""
    for seed in range(200):
        setting, asked = drawn(preset_space("cpu", "full"), seed)
        assert "hicache-storage-backend" not in setting.extra or asked["transfer"] == "direct/page_first_direct"
