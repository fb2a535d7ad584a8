"""A flag wins over the file, and that over the preset."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.errors import ConfigError
from tuning.space import Asked, Condition, Dimension, Preset, Space, dimensions_of, preset_dimensions, preset_space

POLICY = {"flag": "schedule-policy", "type": "categorical", "choices": ["lof", "lpm"]}
SIZE = {"flag": "hicache-size", "type": "int", "range": [10, 40], "step": 10}
PREFETCH = "hicache-storage-prefetch-policy"


def asked(*tables: dict[str, Any], preset: Preset = "full", **given: Any) -> Space:
    """Return the space for these tables, and what else is given, over a preset of a GPU."""
    own = dimensions_of(tables, where="file")
    return Asked(**({"flags": {}} | given), own=own).space(preset_dimensions("local", preset))


def text_of(space: Space, name: str) -> str | None:
    """Return values and conditions of one dimension; None when it is not searched."""
    found = space.find(name)
    return None if found is None else found.text


def test_nothing_asked_is_the_preset() -> None:
    """In its own order."""
    assert asked() == preset_space("local", "full")


def test_a_flag_wins_over_the_file_over_the_preset() -> None:
    """In the place of the preset's own, so that the order of proposals stays."""
    assert text_of(asked(), "schedule-policy") == "fcfs,lpm,dfs-weight"
    assert text_of(asked(POLICY), "schedule-policy") == "lof,lpm"
    both = asked(POLICY, further=("schedule-policy=fcfs,lof",), flags={"page_size": "16,32"})
    assert text_of(both, "schedule-policy") == "fcfs,lof"
    assert text_of(both, "page_size") == "16,32"
    assert [d.name for d in both.dimensions] == [d.name for d in asked().dimensions]


@pytest.mark.parametrize("given", [{"flags": {"hicache_size": "10:40:10"}}, {"tables": (SIZE,)}])
def test_a_size_displaces_the_ratio_of_the_preset(given: dict[str, Any]) -> None:
    """Else every search over sizes would be refused for a ratio that nobody gave."""
    space = asked(*given.pop("tables", ()), **given)
    assert text_of(space, "hicache_size") == "10:40:10 (with HiCache)"
    assert space.find("hicache_ratio") is None


def test_a_ratio_of_a_flag_displaces_the_size_of_the_file() -> None:
    """And the other way round."""
    space = asked(SIZE, flags={"hicache_ratio": "2,3"})
    assert (text_of(space, "hicache_ratio"), space.find("hicache_size")) == ("2,3 (with HiCache)", None)


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ({"flags": {"page_size": "default", "mem_fraction_static": ""}}, {"page_size", "mem_fraction_static"}),
        ({"further": ("kv-cache-dtype=default",)}, {"kv-cache-dtype"}),
        ({"further": ("hicache-storage-backend=default",)}, {"hicache-storage-backend", PREFETCH}),
        ({"further": ("hicache-storage-backend=mooncake,nixl",)}, {PREFETCH}),
        ({"fixed": {"page-size": "64"}}, {"page_size"}),
        ({"fixed": {"chunked-prefill-size": "4096"}}, {"chunked-prefill-size"}),
        ({"fixed": {"hicache-storage-backend": "mooncake"}}, {"hicache-storage-backend", PREFETCH}),
        ({"fixed": {"hicache-storage-backend": "file"}}, {"hicache-storage-backend"}),
    ],
)
def test_what_is_left_out_or_fixed_is_not_searched(given: dict[str, Any], gone: set[str]) -> None:
    """Nor what exists only beside it."""
    space = asked(**given)
    assert {d.name for d in asked().dimensions} - {d.name for d in space.dimensions} == gone


def test_a_condition_on_what_is_fixed_is_settled() -> None:
    """The prefetch policy of a storage tier that all launches have depends on HiCache alone."""
    space = asked(fixed={"hicache-storage-backend": "file"})
    assert text_of(space, PREFETCH) == "best_effort,wait_complete,timeout (with HiCache)"
    table = {"flag": "a", "type": "switch", "when": {"max-running-requests": 64}}
    assert text_of(asked(table, fixed={"max-running-requests": "64"}), "a") == "off,on"
    assert asked(table, fixed={"max-running-requests": "32"}).find("a") is None


def test_without_hicache_there_is_nothing_of_it() -> None:
    """A preset and a file may say what they like."""
    names = {d.name for d in asked(SIZE, flags={"hicache": "off"}).dimensions}
    assert not any(name.startswith("hicache") for name in names - {"hicache"})
    assert "transfer" not in names


def test_a_condition_of_the_user_s_own_that_never_holds_is_told() -> None:
    """A misspelt value must not silently end a dimension, as one of a preset's may."""
    table = {"flag": "a", "type": "switch", "when": {"hicache-storage-backend": "fil"}}
    with pytest.raises(ConfigError, match=r"--a, when --hicache-storage-backend is fil: that is none of its values"):
        asked(table)
    with pytest.raises(ConfigError, match="--a, when --hicache-storage-backend: that flag is not searched"):
        asked(table, preset="hicache")


def test_only_what_is_asked_for_is_searched_without_a_preset() -> None:
    """As for one setting whose limit is sought."""
    space = Asked({"hicache": "on", "hicache_size": "24"}).space([])
    with_hicache = (Condition(name="hicache", values=(True,)),)
    assert space.dimensions == (
        Dimension(name="hicache", choices=(True,)),
        Dimension(name="hicache_size", choices=(24,), when=with_hicache),
    )
