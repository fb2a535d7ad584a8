"""Dimensions from values that are read already: what no setting can have is refused, whoever has written it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.engine.setting import Setting, canonical_transfer
from scenarios.errors import ConfigError
from scenarios.strict import nearest
from tuning.space.dimension import DECIMALS, HICACHE, SGLANG_DEFAULT, WITH_HICACHE, Choice, Condition, Dimension

TRANSFER = "transfer"
TRANSFERS = ("kernel/page_first", "kernel/layer_first", "direct/layer_first", "direct/page_first_direct")
"""The four pairs of io backend and memory layout that SGLang keeps apart without a storage tier."""
WRITTEN_TRANSFERS = tuple(
    f"{io}/{layout}" for io in ("direct", "kernel") for layout in ("layer_first", "page_first", "page_first_direct")
)
WRITE_POLICIES = ("write_through", "write_through_selective", "write_back")


def listed(name: str, values: Sequence[Choice], *, where: str, when: Sequence[Condition] = ()) -> Dimension:
    """Return the dimension of a list, each value once; raise ConfigError that begins with `where`."""
    choices = tuple(dict.fromkeys(_canonical(name, value, where) for value in values))
    _check_values(name, choices, where=where)
    return Dimension(name=name, choices=choices, when=(*_own_conditions(name), *when))


def ranged(
    name: str,
    low: float,
    high: float,
    step: float | None,
    *,
    where: str,
    when: Sequence[Condition] = (),
) -> Dimension:
    """Return the dimension of a range, which ends at its last step, so that no value lies outside the grid.

    Without a `step` its scale is logarithmic. Raises ConfigError that begins with `where`.
    """
    if step is not None and low <= high and step > 0:
        high = round(low + math.floor((high - low) / step + 1e-9) * step, DECIMALS)
    data = {"name": name, "low": low, "high": high, "step": step, "log": step is None}
    found = Dimension.parse(data | {"when": (*_own_conditions(name), *when)}, where=where)
    between = low if step is None else min(low + step, high)
    _check_values(name, (low, between, high), where=where)
    return found


def _own_conditions(name: str) -> tuple[Condition, ...]:
    """What is of HiCache exists only with it."""
    return (WITH_HICACHE,) if name.startswith(("hicache-", "hicache_")) or name == TRANSFER else ()


def _canonical(name: str, value: Choice, where: str) -> Choice:
    """Return `value` as SGLang would have it; pairs that it rewrites to another one are named by what they become."""
    valid = {TRANSFER: WRITTEN_TRANSFERS, "hicache_write_policy": WRITE_POLICIES}.get(name, ())
    if value == SGLANG_DEFAULT or not valid:
        return value
    if value not in valid:
        raise ConfigError(f"{where}: unknown value `{value}`{nearest(str(value), valid)}")
    return "/".join(canonical_transfer(*str(value).split("/"))) if name == TRANSFER else value  # type: ignore[arg-type]


def _check_values(name: str, values: Sequence[Choice], *, where: str) -> None:
    """Raise ConfigError now for a value that no setting can have, not when it is proposed in the middle of a search."""
    for value in values if name in Setting.model_fields and name != HICACHE else ():
        if value != SGLANG_DEFAULT:
            Setting.parse({HICACHE: True, name: value}, where=where)
