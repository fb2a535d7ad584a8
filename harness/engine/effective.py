"""Whether the engine runs what it was asked to, by what its /server_info says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.engine.flags import human_int
from harness.engine.old_names import today
from harness.engine.setting import Setting
from harness.engine.surroundings import FlagValue

RENAMED = {"model": "model_path", "tensor_parallel_size": "tp_size", "data_parallel_size": "dp_size"}
EQUAL_VALUES = {"bf16": "bfloat16"}
"""Two names that the engine takes for one value."""
GIB = 2**30


@dataclass(frozen=True)
class Difference:
    """A flag that the engine runs with another value than was asked for."""

    flag: str
    asked: str
    got: str


@dataclass(frozen=True)
class ToldMemory:
    """What the engine says it took of the device, in bytes; None where it does not tell."""

    weights_bytes: int | None
    kv_pool_bytes: int | None
    graphs_bytes: int | None


def differences(setting: Setting, server_info: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the flags of `setting` that the engine runs with another value.

    A flag that /server_info does not have cannot be compared; `not_told` names those.
    """
    if not setting.hicache and server_info.get("enable_hierarchical_cache"):
        yield Difference("--enable-hierarchical-cache", "off", "on")
    for name, asked in setting.values():
        key = _key(name)
        if key in server_info and not _same(asked, server_info[key]):
            yield Difference(f"--{name}", str(asked), _text(server_info[key]))


def not_told(setting: Setting, server_info: Mapping[str, Any]) -> list[str]:
    """List the flags of `setting` that the engine says nothing of."""
    return [f"--{name}" for name, _ in setting.values() if _key(name) not in server_info]


def told_memory(server_info: Mapping[str, Any]) -> ToldMemory:
    """Return what the engine says it took on its fullest rank; SGLang tells hundredths of GiB."""
    states = server_info.get("internal_states")
    told = [state.get("memory_usage") or {} for state in states or () if isinstance(state, Mapping)]

    def most(part: str) -> int | None:
        values = [_gib(usage[part]) for usage in told if part in usage]
        return round(max(values) * GIB) if values else None

    return ToldMemory(weights_bytes=most("weight"), kv_pool_bytes=most("kvcache"), graphs_bytes=most("graph"))


def _gib(told: Any) -> float:
    """Read GiB; 0.5.23 tells the graphs by what they were captured for."""
    return sum(map(float, told.values())) if isinstance(told, Mapping) else float(told)


def _key(name: str) -> str:
    key = today(name).replace("-", "_")
    return RENAMED.get(key, key)


def _same(asked: FlagValue, got: Any) -> bool:
    if isinstance(asked, bool) or isinstance(got, bool):
        return asked is got
    if isinstance(got, int | float):
        return _number(asked) == float(got)
    if isinstance(got, dict | list):
        return bool(_json(str(asked)) == got)
    text = str(asked)
    return got is not None and EQUAL_VALUES.get(text, text) == EQUAL_VALUES.get(str(got), str(got))


def _number(value: FlagValue) -> float | None:
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return float(human_int(str(value)))
    except ValueError:
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
