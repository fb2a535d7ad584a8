"""What no setting of a space can have is cut off before anything is launched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.errors import ConfigError
from tests.support.machines import GB, GIB, bounds
from tests.support.spaces import drawn
from tuning.space import Bounds, Condition, Cut, Dimension, Ranges, Space, arranged, cut, preset_space

SIZES = "a host pool of {} GB over 1 rank(s) does not fit: 80.0 GB of 100.0 GB can be given away with 20 % kept free"


def text_of(space: Space, name: str) -> str | None:
    """Return the values of one dimension; None when it is not searched."""
    found = space.find(name)
    return None if found is None else found.values_text


@pytest.mark.parametrize(
    ("ranges", "name", "left", "first_refused"),
    [
        ({"hicache_size": "40:200:20"}, "hicache_size", "40:80:20", "100.0"),
        ({"hicache_size": "60,300,70,100"}, "hicache_size", "60,70", "100.0"),
        ({"hicache_size": "64:512:log"}, "hicache_size", "64:80:log", "81.0"),
    ],
)
def test_a_host_pool_that_cannot_fit_is_not_searched(
    ranges: dict[str, Any], name: str, left: str, first_refused: str
) -> None:
    """The end of a range, or each value of a list, and the note says why."""
    found = cut(Ranges(**ranges).space(), bounds(host_gb=100))
    assert text_of(found.space, name) == left
    (note,) = found.notes
    assert note == f"{name} {ranges[name]} is cut to {left}: {SIZES.format(first_refused)}"


def test_a_space_that_fits_stays_as_it_is() -> None:
    """Without a note."""
    for preset in ("hicache", "hicache+memory", "full"):
        space = preset_space("local", preset)
        found = cut(space, bounds(device_gib=141))
        assert (found.space, found.notes) == (space, ())


def test_a_ratio_is_possible_with_the_smallest_device_pool() -> None:
    """What does not fit at the largest memory fraction may at the smallest, if the forecast is a tenth too high."""
    space = Ranges(hicache="on", mem_fraction_static="0.4:0.8:0.1", hicache_ratio="1.5:6:0.5").space()
    machine = bounds(host_gb=150)
    found = cut(space, machine)
    assert text_of(found.space, "hicache_ratio") == "1.5:6:0.5"
    found = cut(space, bounds(host_gb=100))
    assert text_of(found.space, "hicache_ratio") == "1.5:5:0.5"
    assert text_of(found.space, "mem_fraction_static") == "0.4:0.8:0.1"


def test_hicache_is_not_searched_where_no_pool_fits() -> None:
    """And nothing of it; where it must be on the search is refused in one sentence."""
    found = cut(Ranges(hicache_size="200,300", transfer="direct/layer_first").space(), bounds(host_gb=100))
    assert [dimension.name for dimension in found.space.dimensions] == ["hicache"]
    assert text_of(found.space, "hicache") == "off"
    with pytest.raises(ConfigError) as refused:
        cut(Ranges(hicache="on", hicache_size="200,300").space(), bounds(host_gb=100))
    assert str(refused.value) == f"--hicache on: no setting can work: {SIZES.format('200.0')}"


def test_a_share_that_the_weights_fill_is_not_searched() -> None:
    """From the low end; and none of it is refused."""
    space = Ranges(hicache="off", mem_fraction_static="0.1:0.8:0.1").space()
    found = cut(space, bounds(device_gib=24))
    assert text_of(found.space, "mem_fraction_static") == "0.7:0.8:0.1"
    assert "is cut to 0.7:0.8:0.1: the weights take 16.4 GB of each device" in found.notes[0]
    with pytest.raises(ConfigError, match="--hicache off: no setting can work: the weights take"):
        cut(space, bounds(device_gib=16))


def test_pages_that_fit_no_chunk_are_not_searched() -> None:
    """SGLang's rules of flags count as memory does; a page that fits one of the chunks stays."""
    space = Ranges(hicache="off", page_size="16,48,96").space(["chunked-prefill-size=2048,1440"])
    assert text_of(cut(space, bounds()).space, "page_size") == "16,48,96"
    assert text_of(cut(space, bounds(fixed={"chunked-prefill-size": "2048"})).space, "page_size") == "16,48,96"
    alone = Ranges(hicache="off", page_size="16,48,96").space()
    assert text_of(cut(alone, bounds()).space, "page_size") == "16"


def test_what_exists_only_beside_a_value_that_is_cut_goes_with_it() -> None:
    """And stays beside the others."""
    sizes = Ranges(hicache_size="50,90").dimensions()
    beside = [
        Dimension(name=name, choices=("x",), when=(Condition(name="hicache_size", values=values),))
        for name, values in (("a", (90,)), ("b", (50, 90)))
    ]
    found = cut(arranged([*sizes, *beside]), bounds(host_gb=100))
    assert [dimension.name for dimension in found.space.dimensions] == ["hicache", "hicache_size", "b"]


def test_a_scale_without_steps_ends_where_memory_does() -> None:
    """To a thousandth, from both sides: the weights below, the host pool above."""
    space = arranged(
        [
            *Ranges(hicache="on", mem_fraction_static="0.1:0.9:log", hicache_ratio="2").dimensions(),
            Dimension(name="chunked-prefill-size", low=512, high=8192, log=True),
        ]
    )
    machine = bounds(host_gb=100)
    found = cut(space, machine).space
    fraction = found.find("mem_fraction_static")
    assert fraction is not None
    assert fraction.low == pytest.approx(0.95 * 16.38 * GB / (80 * GIB), rel=2e-3)
    assert fraction.high == pytest.approx(0.72, rel=5e-3)
    assert text_of(found, "chunked-prefill-size") == "512:8192:log"


def test_a_value_that_exists_only_beside_another_is_tried_beside_it() -> None:
    """Also when that other decides nothing itself."""
    beside = Condition(name="schedule-policy", values=("lpm",))
    sizes = Dimension(name="hicache_size", low=40, high=200, step=20, when=(beside,))
    space = arranged([*Ranges(hicache="on").dimensions(["schedule-policy=fcfs,lpm"]), sizes])
    assert text_of(cut(space, bounds(host_gb=100)).space, "hicache_size") == "40:80:20"


def test_where_only_one_branch_can_work_the_other_is_left_to_each_proposal() -> None:
    """No value of the flag that branches is impossible alone, so nothing is cut, and nothing is refused."""
    beside = Condition(name="schedule-policy", values=("lpm",))
    sizes = Dimension(name="hicache_size", choices=(200, 300), when=(beside,))
    space = arranged([*Ranges(hicache="on").dimensions(["schedule-policy=fcfs,lpm"]), sizes])
    assert cut(space, bounds(host_gb=100, device_gib=40)) == Cut(space)


def test_the_same_machine_cuts_alike_whatever_was_cut() -> None:
    """What is left is left again, so a resume finds the space of its study."""
    machine = bounds(host_gb=120)
    once = cut(preset_space("local", "full"), machine).space
    assert cut(once, machine).space == once


@settings(deadline=None)
@given(
    host_gb=st.integers(40, 600),
    low=st.integers(10, 300),
    count=st.integers(0, 5),
    step=st.integers(1, 100),
    seed=st.integers(0, 2**32 - 1),
)
def test_nothing_that_can_work_is_cut_off(host_gb: int, low: int, count: int, step: int, seed: int) -> None:
    """Every proposal of the whole space that preflight lets pass is one of the space that is left."""
    machine: Bounds = bounds(host_gb=host_gb)
    space = Ranges(hicache_size=f"{low}:{low + count * step}:{step}", page_size="1,16,48").space()
    left = cut(space, machine).space
    setting, asked = drawn(space, seed)
    if machine.refusal(setting) is None:
        for dimension in left.dimensions:
            assert dimension.name not in asked or asked[dimension.name] in dimension.grid
        assert asked.keys() <= {dimension.name for dimension in left.dimensions}
