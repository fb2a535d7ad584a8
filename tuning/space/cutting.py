"""What no setting of a space can have is cut off before anything is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from tuning.space.bounds import MEMORY_FLAGS, RULE_FLAGS, Bounds
from tuning.space.dimension import Choice, Dimension
from tuning.space.space import Space, alive, flag_of, setting_of

MOST_TRIED = 3000
"""So many settings are looked at to find one that works with a value; when there are more, it is taken to exist."""

Refuse = Callable[[Setting], str | None]


@dataclass(frozen=True)
class Cut:
    """The part of a space that may work, and a sentence for each cut."""

    space: Space
    notes: tuple[str, ...] = ()


def cut(space: Space, bounds: Bounds) -> Cut:
    """Cut off the values that no setting of `space` can have; raise ConfigError when no setting at all can work.

    Of a range only the ends go. The answer is the same whatever else runs on the machine, so a resume cuts alike.
    """
    notes: list[str] = []
    for name in [dimension.name for dimension in space.dimensions if dimension.name in MEMORY_FLAGS | RULE_FLAGS]:
        dimension = space.find(name)
        if dimension is None:  # what it depends on was cut off before
            continue
        reasons = dict(_reasons(dimension, space, bounds))
        kept = [value for value in dimension.grid if value not in reasons]
        if not reasons or (dimension.when and not kept):
            continue
        reason = list(reasons.values())[-1]
        if not kept:
            raise ConfigError(f"{flag_of(name)} {dimension.values_text}: no setting can work: {reason}")
        smaller = _with_values(dimension, kept)
        notes.append(f"{name} {dimension.values_text} is cut to {smaller.values_text}: {reason}")
        space = Space(dimensions=tuple(alive(smaller if d.name == name else d for d in space.dimensions)))
    return Cut(space, tuple(notes))


def _reasons(dimension: Dimension, space: Space, bounds: Bounds) -> Iterator[tuple[Choice, str]]:
    """Yield each value to cut off, and why nothing works with it: any choice, or the ends of a range."""
    for values in (dimension.grid, () if dimension.choices else dimension.grid[::-1]):
        for value in values:
            reason = _impossible(dimension.name, value, space, bounds)
            if reason is not None:
                yield value, reason
            elif not dimension.choices:
                break


def _impossible(name: str, value: Choice, space: Space, bounds: Bounds) -> str | None:
    """Say why no setting with this value can work; None when one may."""
    checks: tuple[tuple[frozenset[str], Refuse], ...] = (
        (RULE_FLAGS, bounds.broken_rule),
        (MEMORY_FLAGS, bounds.too_large),
    )
    for flags, refuse in checks:
        if name in flags and (reason := _refused_everywhere(_settings(space, flags, {name: value}), bounds, refuse)):
            return reason
    return None


def _refused_everywhere(settings: Iterator[dict[str, Choice]], bounds: Bounds, refuse: Refuse) -> str | None:
    """Return why the first of `settings`, which asks for least, is refused as all others are; None when one is not."""
    first = None
    for tried, values in enumerate(settings):
        reason = refuse(bounds.spec.canonical(setting_of(values)))
        if reason is None or tried == MOST_TRIED:
            return None
        first = first or reason
    return first


def _settings(space: Space, flags: frozenset[str], given: Mapping[str, Choice]) -> Iterator[dict[str, Choice]]:
    """Yield the values of every setting that has the `given` ones, as far as `flags` tell settings apart."""
    deciding = set(flags | given.keys())
    for dimension in reversed(space.dimensions):
        if dimension.name in deciding:
            deciding |= {condition.name for condition in dimension.when}
    dimensions = [dimension for dimension in space.dimensions if dimension.name in deciding]
    return (values for values in _products(dimensions, given, {}) if given.keys() <= values.keys())


def _products(
    dimensions: list[Dimension], given: Mapping[str, Choice], values: dict[str, Choice]
) -> Iterator[dict[str, Choice]]:
    if not dimensions:
        yield values
        return
    first, *rest = dimensions
    if not first.exists(values):
        yield from _products(rest, given, values)
        return
    for value in (given[first.name],) if first.name in given else first.grid:
        yield from _products(rest, given, {**values, first.name: value})


def _with_values(dimension: Dimension, kept: list[Choice]) -> Dimension:
    if dimension.choices:
        return dimension.model_copy(update={"choices": tuple(kept)})
    return dimension.model_copy(update={"low": float(kept[0]), "high": float(kept[-1])})
