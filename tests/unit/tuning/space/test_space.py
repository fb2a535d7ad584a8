"""From dimensions to a space, and from a space to settings."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.setting import Setting
from harness.engine.surroundings import Surroundings
from scenarios.errors import ConfigError
from tests.support.spaces import drawn, propose
from tuning.space import (
    Condition,
    Dimension,
    Ranges,
    Space,
    arranged,
    one_setting,
    only,
    preset_space,
    setting_of,
)

DEFAULTS = [preset_space("local"), preset_space("cpu")]
PRESETS = [
    preset_space(engine, preset) for engine in ("local", "cpu") for preset in ("hicache", "hicache+memory", "full")
]
SEEDS = st.integers(0, 2**32 - 1)


def switch(name: str, *when: tuple[str, Any]) -> Dimension:
    """Describe a flag with two values, which exists when others have theirs."""
    conditions = tuple(Condition(name=parent, values=(value,)) for parent, value in when)
    return Dimension(name=name, choices=("x", "y"), when=conditions)


@st.composite
def conditional_spaces(draw: st.DrawFn) -> Space:
    """Draw a space whose flags depend on each other, given in any order."""
    dimensions = [Dimension(name="hicache", choices=(False, True))]
    for name in draw(st.lists(st.sampled_from(["hicache-a", "b", "c", "d", "e"]), unique=True)):
        parents = draw(st.lists(st.sampled_from(dimensions), unique_by=lambda parent: parent.name, max_size=2))
        when = [Condition(name=p.name, values=(draw(st.sampled_from(p.choices)),)) for p in parents]
        choices = draw(st.lists(st.sampled_from(["default", "x", 1, 2.5]), unique=True, min_size=1))
        dimensions.append(Dimension(name=name, choices=tuple(choices), when=tuple(when)))
    return arranged(draw(st.permutations(dimensions)))


@given(space=conditional_spaces(), seed=SEEDS)
def test_no_proposal_holds_a_flag_that_does_not_exist(space: Space, seed: int) -> None:
    """Optuna is asked for exactly the flags whose conditions hold, and no other reaches the engine."""
    setting, asked = drawn(space, seed)
    assert asked.keys() == {d.name for d in space.dimensions if all(asked.get(c.name) in c.values for c in d.when)}
    assert setting.extra.keys() <= {name for name, value in asked.items() if value != "default"} - {"hicache"}


@pytest.mark.parametrize("space", PRESETS)
@given(seed=SEEDS, late=st.booleans())
def test_a_proposal_of_a_preset_is_canonical_and_stays_so(space: Space, seed: int, late: bool) -> None:
    """Whatever is canonical is its own canonical form, around every engine; without HiCache there is nothing of it."""
    setting, asked = drawn(space, seed)
    assert setting == setting.canonical()
    fixed = Surroundings(version=(0, 5, 23) if late else (0, 5, 15), defaults={"schedule-policy": "fcfs"})
    once = setting.canonical(fixed)
    assert once == once.canonical(fixed)
    names = {name for name, _ in setting.values()}
    assert setting.hicache or not any("hicache" in name or "hierarchical" in name for name in names)
    assert setting.hicache == asked["hicache"]
    assert ("hicache-storage-prefetch-policy" in asked) == (asked.get("hicache-storage-backend") == "file")


def test_a_flag_is_asked_for_after_those_that_it_depends_on() -> None:
    """However they are given; what depends on nothing keeps its order."""
    space = arranged([switch("c", ("b", "y")), switch("b", ("a", "x")), switch("z"), switch("a")])
    assert [dimension.name for dimension in space.dimensions] == ["z", "a", "b", "c"]
    assert propose(space, z="x", a="x", b="y", c="x").extra == {"z": "x", "a": "x", "b": "y", "c": "x"}
    assert propose(space, z="x", a="y").extra == {"z": "x", "a": "y"}
    assert propose(space, z="x", a="x", b="x").extra == {"z": "x", "a": "x", "b": "x"}


@pytest.mark.parametrize(
    ("dimensions", "said"),
    [
        ([switch("a", ("b", "x")), switch("b", ("a", "x"))], "--a and --b: their `when` lead back to themselves"),
        ([switch("a", ("a", "x"))], "--a: their `when` lead back to themselves"),
        ([switch("a", ("b", "x")), switch("c")], "--a, when --b: that flag is not searched; search it too (searched"),
        ([switch("a", ("b", "z")), switch("b")], "--a, when --b is z: that is none of its values (x,y)"),
    ],
)
def test_conditions_that_make_no_order_are_refused(dimensions: list[Dimension], said: str) -> None:
    """A circle, a flag that is not searched, a value that it never has."""
    with pytest.raises(ConfigError) as refused:
        arranged(dimensions)
    assert str(refused.value).startswith(said)


def test_a_condition_has_the_values_of_its_flag_however_they_are_written() -> None:
    """`on` is True, `2` is 2; so it holds when Optuna proposes that."""
    parents = [Dimension(name="hicache", choices=(False, True)), Dimension(name="n", low=1, high=3, step=1)]
    wanted = (Condition(name="hicache", values=("on",)), Condition(name="n", values=("2", 3.0)))
    space = arranged([*parents, Dimension(name="a", choices=("x",), when=wanted)])
    assert [condition.values for condition in space.dimensions[-1].when] == [(True,), (2, 3)]
    assert propose(space, hicache=True, n=2, a="x").extra == {"n": 2, "a": "x"}
    assert propose(space, hicache=True, n=1).extra == {"n": 1}


def test_what_exists_only_with_hicache_goes_when_it_is_never_on() -> None:
    """And what depends on that."""
    space = arranged([*Ranges(hicache="off", transfer="direct/layer_first").dimensions(), switch("a")])
    assert [dimension.name for dimension in space.dimensions] == ["hicache", "a"]


def test_the_default_among_other_values_leaves_the_flag_out() -> None:
    """It is SGLang that decides then, as if the flag were not searched."""
    space = Ranges(hicache="off", page_size="default,16").space(["schedule-policy=default,lpm"])
    assert propose(space, hicache=False, page_size="default", **{"schedule-policy": "default"}) == Setting()


@pytest.mark.parametrize("space", DEFAULTS)
def test_flags_of_hicache_are_asked_for_only_when_it_is_on(space: Space) -> None:
    """Without HiCache its flags do not exist, so Optuna must not model them there."""
    off: dict[str, Any] = {"hicache": False, "mem_fraction_static": 0.88, "page_size": 16}
    assert propose(space, **off) == Setting(mem_fraction_static=0.88, page_size=16)
    on = off | {"hicache": True, "hicache_ratio": 3.0, "hicache_write_policy": "write_back"}
    setting = propose(space, **on, transfer="direct/layer_first")
    assert (setting.hicache_ratio, setting.hicache_write_policy) == (3.0, "write_back")
    assert (setting.hicache_io_backend, setting.hicache_mem_layout) == ("direct", "layer_first")


def test_proposals_that_give_the_same_server_are_one_setting() -> None:
    """Defaults spelled out, integers for floats and pairs that SGLang rewrites have one key."""
    plain = setting_of({"hicache": True})
    spelled = setting_of({"hicache": True, "hicache_ratio": 2, "transfer": "kernel/page_first"})
    assert plain.key == spelled.key
    rewritten, written = (
        setting_of({"hicache": True, "transfer": f"{io}/page_first_direct"}) for io in ("kernel", "direct")
    )
    assert rewritten.key == written.key != plain.key
    assert setting_of({"hicache": False, "hicache_ratio": 4.0}).key == setting_of({"hicache": False}).key


def test_names_that_are_no_field_of_a_setting_are_further_engine_flags() -> None:
    """A dimension of any other name reaches the launch command as that flag."""
    assert list(setting_of({"hicache": False, "chunked-prefill-size": 4096}).flags()) == [
        "--chunked-prefill-size",
        "4096",
    ]


def test_a_space_survives_its_file() -> None:
    """study.json gives back the same space, integers as integers and switches as switches."""
    for space in DEFAULTS:
        again = Space.model_validate_json(space.model_dump_json())
        assert again == space
        assert [list(map(type, d.choices)) for d in again.dimensions] == [
            list(map(type, d.choices)) for d in space.dimensions
        ]


@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting(hicache=True, hicache_ratio=3.0, page_size=64, mem_fraction_static=0.88).canonical(),
        Setting(
            hicache=True, hicache_size=60, hicache_io_backend="direct", extra={"schedule-policy": "lpm"}
        ).canonical(),
    ],
)
def test_a_setting_that_cannot_be_changed_is_a_space_of_its_own(setting: Setting) -> None:
    """A search of it proposes it and nothing else, and a search for a limit takes it as it is."""
    space = Space.model_validate_json(only(setting).model_dump_json())
    assert one_setting(space) == setting
    assert space.propose(optuna.create_study().ask()) == setting
