"""The search space: which flags may vary, over what, and when.

Without HiCache its flags do not exist, so they are only asked for when it is on. A proposal is made canonical at
once, so that two proposals which give the same server are recognised as one setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import optuna

from harness.engine.setting import Setting, canonical_transfer
from scenarios.errors import ConfigError
from scenarios.strict import StrictModel
from tuning.space.dimension import HICACHE, SGLANG_DEFAULT, WITH_HICACHE, Choice, Condition, Dimension, written

SWITCH = (False, True)


class Space(StrictModel):
    """The dimensions of one study, asked for in order: what a condition speaks of comes before what it decides."""

    dimensions: tuple[Dimension, ...]

    def find(self, name: str) -> Dimension | None:
        """Return the dimension of this name."""
        return next((dimension for dimension in self.dimensions if dimension.name == name), None)

    def propose(self, trial: optuna.Trial) -> Setting:
        """Ask Optuna for a canonical setting."""
        values: dict[str, Choice] = {}
        for dimension in self.dimensions:
            if dimension.exists(values):
                values[dimension.name] = dimension.suggest(trial)
        return setting_of(values)


def arranged(dimensions: Iterable[Dimension]) -> Space:
    """Put dimensions in the order in which they are asked for; raise ConfigError where conditions make none.

    Every condition speaks of a flag that is searched too, and of values that it can have. What exists only with HiCache
    goes where that is never on.
    """
    left = {dimension.name: dimension for dimension in dimensions}
    known, ordered = dict(left), list[Dimension]()
    while left:
        ready = [d for d in left.values() if not any(c.name in left for c in d.when)]
        if not ready:
            circle = " and ".join(flag_of(name) for name in sorted(left))
            raise ConfigError(f"{circle}: their `when` lead back to themselves in a circle; leave one of them out")
        when = tuple(_resolved(condition, ready[0], known) for condition in ready[0].when)
        ordered.append(left.pop(ready[0].name).model_copy(update={"when": when}))
    return Space(dimensions=tuple(alive(ordered)))


def alive(dimensions: Iterable[Dimension]) -> list[Dimension]:
    """Leave out every dimension that no proposal can have, as its condition never holds."""
    kept = list(dimensions)
    while dead := [d for d in kept if not all(_can_hold(condition, kept) for condition in d.when)]:
        kept = [dimension for dimension in kept if dimension not in dead]
    return kept


def setting_of(values: Mapping[str, Any]) -> Setting:
    """Make the canonical setting of proposed values; names that are no field of Setting are further engine flags."""
    given = {name: value for name, value in values.items() if value != SGLANG_DEFAULT}
    known = {name: value for name, value in given.items() if name in Setting.model_fields}
    if "transfer" in given:
        io_backend, layout = str(given["transfer"]).split("/")
        known |= {"hicache_io_backend": io_backend, "hicache_mem_layout": layout}
    extra = {name: value for name, value in given.items() if name not in Setting.model_fields and name != "transfer"}
    return Setting.parse({**known, "extra": extra}, where="setting").canonical()


def only(setting: Setting) -> Space:
    """Return the space that holds `setting` alone, for an engine that nothing restarts."""
    values: dict[str, Choice] = {HICACHE: setting.hicache}
    for name in type(setting).model_fields:
        value = getattr(setting, name)
        if name not in (HICACHE, "hicache_io_backend", "hicache_mem_layout", "extra") and value is not None:
            values[name] = value
    if setting.hicache_io_backend is not None or setting.hicache_mem_layout is not None:
        values["transfer"] = "/".join(canonical_transfer(setting.hicache_io_backend, setting.hicache_mem_layout))
    values |= setting.extra
    return Space(dimensions=tuple(Dimension(name=name, choices=(value,)) for name, value in values.items()))


def both(first: Setting, second: Setting) -> Space:
    """Return the space that holds two settings, for what measures just these."""
    dimensions: dict[str, Dimension] = {}
    for dimension in (*only(first).dimensions, *only(second).dimensions):
        earlier = dimensions.get(dimension.name, dimension).choices
        choices = tuple(dict.fromkeys((*earlier, *dimension.choices)))
        needs_hicache = dimension.name.startswith("hicache_") or dimension.name == "transfer"
        when = (WITH_HICACHE,) if needs_hicache else ()
        dimensions[dimension.name] = Dimension(name=dimension.name, choices=choices, when=when)
    return Space(dimensions=tuple(dimensions.values()))


def one_setting(space: Space) -> Setting:
    """Return the only setting of `space`; raise ConfigError that names a flag with several values."""
    values: dict[str, Choice] = {}
    for dimension in space.dimensions:
        if not dimension.exists(values):
            continue
        if len(dimension.choices) != 1:
            raise ConfigError(
                f"{flag_of(dimension.name)} {dimension.values_text}: find-limit measures one setting; give one value"
            )
        values[dimension.name] = dimension.choices[0]
    return setting_of(values)


def flag_of(name: str) -> str:
    """Return the flag of a dimension, as it is written on a command line."""
    return f"--{name.replace('_', '-')}"


def _resolved(condition: Condition, of: Dimension, known: Mapping[str, Dimension]) -> Condition:
    """Return `condition` with the values as its own dimension has them: `on` is True, `2` is 2."""
    where = f"{flag_of(of.name)}, when {flag_of(condition.name)}"
    parent = known.get(condition.name)
    if parent is None:
        searched = ", ".join(name for name in known if name != of.name)
        raise ConfigError(f"{where}: that flag is not searched; search it too (searched are {searched})")
    own = {written(value): value for value in (SWITCH if parent.name == HICACHE else parent.grid)}
    for value in condition.values:
        if written(value) not in own:
            raise ConfigError(f"{where} is {written(value)}: that is none of its values ({parent.values_text})")
    return Condition(name=condition.name, values=tuple(own[written(value)] for value in condition.values))


def _can_hold(condition: Condition, dimensions: Iterable[Dimension]) -> bool:
    values = next((d.grid for d in dimensions if d.name == condition.name), ())
    return any(written(value) in map(written, values) for value in condition.values)
