"""What can be changed without a relaunch, by what SGLang's sources say."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine.effective import differences
from harness.engine.runtime_changes import as_running, live_changes
from harness.engine.setting import Setting

BEFORE = Setting(hicache=True, hicache_ratio=2.0, page_size=64, extra={"pp-max-micro-batch-size": 8}).canonical()
STORAGE = {"hicache-storage-backend": "file"}


def changed(**changes: object) -> Setting:
    """Return the setting with other values."""
    return Setting.model_validate({**BEFORE.model_dump(), **changes}).canonical()


@pytest.mark.parametrize(
    "change",
    [
        {"hicache": False},
        {"hicache_ratio": 3.0},
        {"hicache_ratio": None, "hicache_size": 8},
        {"hicache_write_policy": "write_back"},
        {"hicache_io_backend": "direct"},
        {"hicache_mem_layout": "layer_first"},
        {"mem_fraction_static": 0.8},
        {"page_size": 32},
        {"extra": {**BEFORE.extra, **STORAGE}},
        {
            "extra": {
                **BEFORE.extra,
                "hicache-storage-prefetch-policy": "best_effort",
                "hicache-storage-backend": "file",
            }
        },
        {"extra": {**BEFORE.extra, "schedule-policy": "lpm"}},
    ],
)
def test_what_is_searched_by_default_needs_a_launch(change: dict[str, object]) -> None:
    """In both directions, and together with a flag that can be changed."""
    after = changed(**change)
    assert live_changes(BEFORE, after) is None
    assert live_changes(after, BEFORE) is None
    both = after.model_copy(update={"extra": {**after.extra, "pp-max-micro-batch-size": 4}})
    assert live_changes(BEFORE, both) is None


def test_an_equal_setting_runs_already() -> None:
    """Two that SGLang makes the same server of are one setting."""
    assert live_changes(BEFORE, changed(hicache_ratio=None)) == {}


def test_a_flag_of_the_scheduler_can_be_given_another_value() -> None:
    """Also where it was left out; but not taken away, as nobody knows what a launch would make of it."""
    after, without = changed(extra={"pp-max-micro-batch-size": 4}), changed(extra={})
    assert live_changes(BEFORE, after) == {"pp-max-micro-batch-size": 4}
    assert live_changes(without, after) == {"pp-max-micro-batch-size": 4}
    assert live_changes(BEFORE, without) is None


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ([{"pp_max_micro_batch_size": 4}, {"pp_max_micro_batch_size": 4}], []),
        ([{"pp_max_micro_batch_size": 4}, {"pp_max_micro_batch_size": 8}], ["None"]),
        ([{"pp_max_micro_batch_size": 4}, {}], ["8"]),
        ([], ["8"]),
    ],
)
def test_what_runs_is_what_every_scheduler_says(states: list[dict[str, Any]], found: list[str]) -> None:
    """The leader goes on telling what it was launched with."""
    told = as_running({"pp_max_micro_batch_size": 8, "page_size": 64, "internal_states": states})
    after = changed(extra={"pp-max-micro-batch-size": 4})
    assert [difference.got for difference in differences(after, told)] == found
    assert told["page_size"] == 64
