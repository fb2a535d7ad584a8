"""Which flags decide, and what each does alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.engine.setting import FlagValue, Setting
from harness.store import Outcome
from tests.support.rows import trial_row
from tuning.report.rows import TrialRow
from tuning.report.sensitivity import FEWEST_TRIALS, Sensitivity, sensitivity, value_text
from tuning.space import Ranges, setting_of

SPACE = Ranges(
    hicache="off,on", mem_fraction_static="0.80:0.90:0.02", hicache_ratio="1.5:6:0.5", page_size="1:64:1"
).space()


def searched(
    p99_s: Callable[[Setting, np.random.Generator], float], *, seed: int = 0, count: int = 40
) -> list[TrialRow]:
    """Draw `count` settings of the space at random and give each a P99."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        values = {
            "hicache": bool(draw.random() < 0.7),
            "mem_fraction_static": round(float(draw.choice(np.arange(0.80, 0.91, 0.02))), 2),
            "page_size": int(draw.integers(1, 65)),
        }
        if values["hicache"]:
            values["hicache_ratio"] = float(draw.choice(np.arange(1.5, 6.1, 0.5)))
        setting = setting_of(values)
        rows.append(trial_row(number, setting, p99_s(setting, draw)))
    return rows


def standing_out(found: Sensitivity) -> set[str]:
    """Name the flags that beat chance."""
    return {each.flag for each in found.importance if each.stands_out}


def test_the_flag_that_decides_stands_out() -> None:
    """With a P99 that depends on the page size alone, that is the largest importance, and the only one of weight."""
    found = sensitivity(searched(lambda s, _: 1.0 + (s.page_size or 0) / 16), SPACE, None)
    assert found.trials == 40
    assert found.importance[0].flag == "page_size"
    assert found.importance[0].share > 0.5
    assert "page_size" in standing_out(found)
    assert sum(each.share for each in found.importance) == pytest.approx(1.0)


def test_a_flag_that_exists_only_with_hicache_is_judged_too() -> None:
    """The ratio decides among the settings that have one; those without HiCache are all bad."""
    found = sensitivity(searched(lambda s, _: 9.0 if not s.hicache else 8.0 - (s.hicache_ratio or 0)), SPACE, None)
    assert "hicache_ratio" in standing_out(found)


def test_noise_makes_hardly_any_flag_stand_out() -> None:
    """When no flag means anything, about one in twenty may seem to: of 40 judgements here, six at most."""
    seen = [
        sensitivity(searched(lambda _, draw: float(draw.lognormal()), seed=seed), SPACE, None) for seed in range(10)
    ]
    assert sum(len(standing_out(each)) for each in seen) <= 6


def test_the_same_trials_give_the_same_importance() -> None:
    """A report that is drawn again says the same."""
    rows = searched(lambda s, draw: 1.0 + (s.page_size or 0) / 16 + float(draw.random()))
    assert sensitivity(rows, SPACE, None) == sensitivity(rows, SPACE, None)


def test_a_flag_that_is_left_to_sglang_is_a_choice_like_others() -> None:
    """Where `default` is among the values, it is one, in importance and in slices, unless a condition rules it out."""
    space = Ranges(hicache="off,on", hicache_ratio="default,4", page_size="default,32").space()
    draw = np.random.default_rng(0)
    rows = []
    for number in range(40):
        values: dict[str, FlagValue] = {"hicache": bool(draw.random() < 0.7)}
        values |= {"page_size": 32} if draw.random() < 0.5 else {}
        values |= {"hicache_ratio": 4.0} if values["hicache"] and draw.random() < 0.5 else {}
        p99_s = (1.0 if "page_size" in values else 2.0) + 0.1 * draw.random()
        rows.append(trial_row(number, setting_of(values), p99_s))
    found = sensitivity(rows, space, None)
    assert standing_out(found) == {"page_size"}
    slices = {each.flag: {point.trial: point.value for point in each.points} for each in found.slices}
    assert slices["page_size"] == {row.number: row.values.get("page_size", "default") for row in rows}
    ratios = {row.number: 4.0 if row.values["hicache_ratio"] == 4.0 else "default" for row in rows if row.hicache}
    assert slices["hicache_ratio"] == ratios
    assert set(ratios.values()) == {4.0, "default"}


def test_failed_settings_are_bad_without_a_number() -> None:
    """A flag whose large values crash the engine decides, though no crash has a P99."""
    rows = [
        row if float(row.values["page_size"]) <= 16 else trial_row(row.number, setting_of(dict(row.values)), None)
        for row in searched(lambda _, draw: float(draw.lognormal(0, 0.01)), count=80)
    ]
    assert sensitivity(rows, SPACE, None).importance[0].flag == "page_size"


def test_few_trials_say_so() -> None:
    """Below twenty settings there is a sentence that says what to do, and no figure."""
    found = sensitivity(searched(lambda s, _: 1.0, count=FEWEST_TRIALS - 1), SPACE, None)
    assert found.importance == ()
    assert found.why_none == (
        "the search judged 19 settings, and fewer than 20 cannot tell a flag that decides from luck; search more "
        "(--trials)"
    )


def test_few_feasible_settings_say_so() -> None:
    """What the good ones share cannot be told from four of them."""
    rows = searched(lambda s, _: 1.0, count=4) + [
        trial_row(row.number + 4, setting_of(dict(row.values)), None) for row in searched(lambda s, _: 1.0, seed=1)
    ]
    assert sensitivity(rows, SPACE, None).why_none.startswith("only 4 of 44 settings are feasible")


def test_a_search_of_nothing_says_so() -> None:
    """No flag was varied, or nothing was measured."""
    assert sensitivity([], SPACE, None).why_none == "no flag had more than one value in the search"


def test_trials_at_fault_themselves_do_not_count() -> None:
    """An invalid trial and one that was interrupted teach nothing."""
    rows = searched(lambda s, _: 1.0, count=20)
    spoilt = rows[0].model_copy(update={"outcome": Outcome.INVALID, "feasible": False})
    assert sensitivity([spoilt, *rows[1:]], SPACE, None).trials == 19


def test_values_of_before_a_changed_range_are_left_out_of_importance() -> None:
    """A resume may move the ends of a range; what lies outside now is no point of the space, and breaks nothing."""
    rows = searched(lambda s, _: 1.0 + (s.page_size or 0) / 16)
    smaller = Ranges(
        hicache="off,on", mem_fraction_static="0.80:0.90:0.02", hicache_ratio="1.5:6:0.5", page_size="1:48:1"
    )
    assert sensitivity(rows, smaller.space(), None).importance


def test_a_slice_marks_what_differs_in_one_flag_alone() -> None:
    """Of two settings that differ from the leader in the ratio, one differs in the page size too and is not marked."""
    leader = Setting(hicache=True, hicache_ratio=2.0, page_size=16).canonical()
    alone = Setting(hicache=True, hicache_ratio=4.0, page_size=16).canonical()
    both = Setting(hicache=True, hicache_ratio=6.0, page_size=32).canonical()
    rows = [trial_row(0, leader, 1.0), trial_row(1, alone, 2.0), trial_row(2, both, 3.0)]
    slices = {each.flag: each for each in sensitivity(rows, SPACE, leader.key).slices}
    assert [point.trial for point in slices["hicache_ratio"].alone] == [0, 1]
    assert slices["page_size"].alone == ()
    assert [point.value for point in slices["hicache_ratio"].points] == [2.0, 4.0, 6.0]


def test_hicache_off_differs_in_one_flag_where_all_else_is_equal() -> None:
    """The flags that only HiCache has do not count; a fraction that is left to SGLang does."""
    leader = Setting(hicache=True, hicache_ratio=2.0, mem_fraction_static=0.88).canonical()
    off, plain = Setting(hicache=False, mem_fraction_static=0.88), Setting(hicache=False)
    rows = [trial_row(0, leader, 1.0), trial_row(1, off, 2.0), trial_row(2, plain, 3.0)]
    slices = {each.flag: each for each in sensitivity(rows, SPACE, leader.key).slices}
    assert [point.trial for point in slices["hicache"].alone] == [1, 0]


def test_values_are_written_as_the_user_would() -> None:
    """Switches are on and off, and what a setting does not give is a dash."""
    assert [value_text(value) for value in (True, False, 16, 1.5, "lpm", None)] == [
        "on",
        "off",
        "16",
        "1.5",
        "lpm",
        "-",
    ]
