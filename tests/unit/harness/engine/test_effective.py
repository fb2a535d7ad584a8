"""Whether the engine runs what it was asked to."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine.effective import Difference, ToldMemory, differences, not_told, told_memory
from harness.engine.setting import Setting
from harness.engine.surroundings import FlagValue

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "asked", "got", "same"),
    [
        ("hicache-size", 60, 60, True),
        ("mem-fraction-static", "0.88", 0.88, True),
        ("max-total-tokens", "64k", 64_000, True),
        ("max-total-tokens", "64Ki", 65_536, True),
        ("page-size", 64, 64.0, True),
        ("page-size", 64, 1, False),
        ("page-size", 64, None, False),
        ("schedule-policy", "lpm", "lpm", True),
        ("schedule-policy", "lpm", "fcfs", False),
        ("kv-cache-dtype", "bf16", "bfloat16", True),
        ("disable-overlap-schedule", True, True, True),
        ("disable-overlap-schedule", True, False, False),
        ("disable-overlap-schedule", False, True, False),
        ("page-size", 1, True, False),
        ("page-size", "many", 64, False),
        ("radix-eviction-policy-config", '{"threshold": 3}', {"threshold": 3}, True),
        ("radix-eviction-policy-config", '{"threshold": 3}', {"threshold": 4}, False),
        ("radix-eviction-policy-config", "{", {"threshold": 4}, False),
        ("cuda-graph-max-bs", 16, 16, True),
        ("tensor-parallel-size", "2", 2, True),
    ],
)
def test_values_are_compared_as_the_engine_reads_them(name: str, asked: FlagValue, got: Any, same: bool) -> None:
    """Numbers as numbers, JSON as what it says, old names under their names of today."""
    keys = {"cuda-graph-max-bs": "cuda_graph_max_bs_decode", "tensor-parallel-size": "tp_size"}
    info = {keys.get(name, name.replace("-", "_")): got}
    setting = Setting(extra={name: asked})
    found = list(differences(setting, info))
    assert (found == []) is same
    assert not_told(setting, info) == []
    if not same:
        assert found[0].flag == f"--{name}"


def test_a_difference_is_told_in_words() -> None:
    """Both values as text, an object as JSON."""
    setting = Setting(page_size=64, extra={"radix-eviction-policy-config": "{}"})
    info = {"page_size": 1, "radix_eviction_policy_config": {"a": 1}}
    assert list(differences(setting, info)) == [
        Difference("--page-size", "64", "1"),
        Difference("--radix-eviction-policy-config", "{}", '{"a": 1}'),
    ]


def test_what_the_engine_does_not_tell_is_named() -> None:
    """A flag that /server_info does not have can't be compared, and that is known."""
    assert list(differences(Setting(page_size=64), {})) == []
    assert not_told(Setting(page_size=64), {}) == ["--page-size"]


@pytest.mark.parametrize("info", [{}, {"internal_states": None}, {"internal_states": [{}]}, {"internal_states": ["x"]}])
def test_memory_that_is_not_told(info: dict[str, Any]) -> None:
    """An older engine says nothing of its memory."""
    assert told_memory(info) == ToldMemory(None, None, None)


def test_memory_of_the_fullest_rank() -> None:
    """With data parallelism each copy tells; the fullest counts."""
    states = [{"memory_usage": {"weight": 1.5, "kvcache": 2.0}}, {"memory_usage": {"weight": 1.0, "kvcache": 3.0}}]
    assert told_memory({"internal_states": states}) == ToldMemory(round(1.5 * GIB), 3 * GIB, None)


def test_graphs_that_are_told_one_by_one_add_up() -> None:
    """0.5.23 names what they were captured for ([23] memory_usage.py)."""
    states = [{"memory_usage": {"graph": {"prefill": 0.5, "decode": 1.5, "draft_decode": 0.0}}}]
    assert told_memory({"internal_states": states}).graphs_bytes == 2 * GIB


def test_hicache_that_was_to_be_off_and_is_on() -> None:
    """Off is the absence of a flag, and a server that was not restarted still has it."""
    found = list(differences(Setting(), {"enable_hierarchical_cache": True}))
    assert found == [Difference("--enable-hierarchical-cache", "off", "on")]
    assert list(differences(Setting(), {"enable_hierarchical_cache": False})) == []
