"""The settings of a space one by one, and the samplers that go by such a list."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from harness.engine.setting import Setting
from tuning.samplers.points import GridSampler, Point, all_points, point_of, some_points, values_of
from tuning.space import Ranges, Space

CONDITIONAL = Ranges(
    mem_fraction_static="0.8,0.9", hicache_ratio="2:4:1", hicache_write_policy="write_through,write_back"
)
SPACE = CONDITIONAL.space(["schedule-policy=fcfs,lpm"])
SETTINGS = 2 * 2 * (1 + 3 * 2)


def test_every_setting_comes_once_whatever_its_conditions() -> None:
    """Without HiCache there is one setting for each fraction and policy, with it one for each of its flags too."""
    points = list(all_points(SPACE, Setting.canonical))
    assert len(points) == len({point.setting.key for point in points}) == SETTINGS
    off = [point for point in points if not point.setting.hicache]
    assert len(off) == 4
    assert all("hicache_ratio" not in point.params for point in off)


def test_settings_that_are_the_same_server_come_once() -> None:
    """What SGLang rewrites to one another is one setting: the default policy, named or not."""
    both = Ranges(hicache="on").space(["hicache-host-memory-fraction=0.5,0.6"])
    assert len(list(all_points(both, Setting.canonical))) == 1


def test_of_a_larger_space_a_random_part_is_taken() -> None:
    """The part is that of the seed."""
    parts = [some_points(SPACE, Setting.canonical, most=10, seed=seed) for seed in (1, 1, 2)]
    keys = [[point.setting.key for point in part] for part in parts]
    assert keys[0] == keys[1] != keys[2]
    assert all(3 < len(set(part)) == len(part) <= 10 for part in keys)
    assert len(some_points(SPACE, Setting.canonical, most=SETTINGS, seed=1)) == SETTINGS


@given(st.sampled_from(list(all_points(SPACE, Setting.canonical))))
def test_a_setting_is_found_in_its_space(point: Point) -> None:
    """By its flags alone."""
    found = point_of(point.setting, SPACE, Setting.canonical)
    assert found is not None
    assert (found.setting, found.params) == (point.setting, point.params)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(mem_fraction_static=0.85, extra={"schedule-policy": "fcfs"}),
        Setting(mem_fraction_static=0.8),
        Setting(mem_fraction_static=0.8, page_size=16, extra={"schedule-policy": "fcfs"}),
        Setting(hicache=True, hicache_ratio=5, mem_fraction_static=0.8, extra={"schedule-policy": "fcfs"}),
    ],
)
def test_a_setting_outside_is_not_found(setting: Setting) -> None:
    """Another value, a flag that it leaves open, or one that the space does not have."""
    assert point_of(setting, SPACE, Setting.canonical) is None


@pytest.mark.parametrize(
    ("distribution", "values"),
    [
        (CategoricalDistribution(("b", "a")), ("b", "a")),
        (IntDistribution(2, 8, step=3), (2, 5, 8)),
        (IntDistribution(512, 3000, log=True), (512, 1024, 2048, 3000)),
        (FloatDistribution(0.5, 2.0, log=True), (0.5, 1.0, 2.0)),
        (FloatDistribution(0.7, 0.8, step=0.05), (0.7, 0.75, 0.8)),
        (FloatDistribution(0.0, 2.0), (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)),
    ],
)
def test_the_values_of_a_flag(distribution: optuna.distributions.BaseDistribution, values: tuple[object, ...]) -> None:
    """All of them, in order; of numbers without a step a few."""
    assert values_of(distribution) == values


def grid(space: Space, seed: int) -> list[str]:
    """Return the order in which the sampler of `grid` takes the settings of `space`."""
    points = list(all_points(space, Setting.canonical))
    study = optuna.create_study(sampler=GridSampler(points, seed=seed))
    found = []
    for _ in points:
        trial = study.ask()
        found.append(space.propose(trial).key)
        study.tell(trial, 1.0)
    return found


def test_a_grid_takes_every_setting_once_in_a_drawn_order() -> None:
    """A grid that is cut short is no corner of the space."""
    found = grid(SPACE, 1)
    assert len(set(found)) == SETTINGS
    assert found != [point.setting.key for point in all_points(SPACE, Setting.canonical)]
    assert grid(SPACE, 2) != found == grid(SPACE, 1)


@pytest.mark.parametrize("part", [{"hicache": False}, *({"hicache": True, "hicache_ratio": r} for r in (2, 3, 4))])
def test_a_queued_trial_keeps_the_values_that_it_has(part: dict[str, object]) -> None:
    """Of a trial that was cut off while it was proposed the rest is chosen, and is a setting of the space."""
    points = list(all_points(SPACE, Setting.canonical))
    fitting = {point.key for point in points if part.items() <= point.params.items()}
    for seed in range(5):
        study = optuna.create_study(sampler=GridSampler(points, seed=seed))
        study.enqueue_trial(part)
        assert SPACE.propose(study.ask()).key in fitting
