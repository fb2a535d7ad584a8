"""What can be changed without a relaunch, by what SGLang's sources say."""

from __future__ import annotations

import pytest

from harness.engine import runtime_changes
from harness.engine.runtime_changes import can_change_live
from harness.engine.setting import Setting

BEFORE = Setting(hicache=True, hicache_ratio=2.0, page_size=64).canonical()


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
        {"extra": {"hicache-storage-backend": "file"}},
        {"extra": {"hicache-storage-prefetch-policy": "best_effort", "hicache-storage-backend": "file"}},
        {"extra": {"schedule-policy": "fcfs"}},
    ],
)
def test_nothing_that_is_searched_can(change: dict[str, object]) -> None:
    """Every dimension needs a launch of its own, in both directions."""
    after = Setting.model_validate({**BEFORE.model_dump(), **change}).canonical()
    assert not can_change_live(BEFORE, after)
    assert not can_change_live(after, BEFORE)


def test_an_equal_setting_runs_already() -> None:
    """Two that SGLang makes the same server of are one setting."""
    assert can_change_live(BEFORE, Setting(hicache=True, page_size=64).canonical())


def test_a_flag_that_can_alone_needs_no_relaunch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a version of SGLang learn one; together with another it still does."""
    monkeypatch.setattr(runtime_changes, "CHANGEABLE", frozenset({"hicache-write-policy"}))
    back = BEFORE.model_copy(update={"hicache_write_policy": "write_back"})
    assert can_change_live(BEFORE, back)
    assert not can_change_live(BEFORE, back.model_copy(update={"page_size": 32}))
