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
EDGE = 1e-3
"""How near, relatively, the end of a scale without steps is to what cannot work."""

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
        trying = _Trying(name, space, bounds)
        smaller = _choices_left(dimension, trying) if dimension.choices else _range_left(dimension, trying)
        if not trying.reason or (dimension.when and smaller is None):
            continue
        if smaller is None:
            raise ConfigError(f"{flag_of(name)} {dimension.values_text}: no setting can work: {trying.reason}")
        notes.append(f"{name} {dimension.values_text} is cut to {smaller.values_text}: {trying.reason}")
        space = Space(dimensions=tuple(alive(smaller if d.name == name else d for d in space.dimensions)))
    return Cut(space, tuple(notes))


@dataclass
class _Trying:
    """Tries the values of one dimension, and keeps why the last one that was refused can never work."""

    name: str
    space: Space
    bounds: Bounds
    reason: str = ""

    def works(self, value: Choice) -> bool:
        """Whether some setting with this value may work."""
        said = _impossible(self.name, value, self.space, self.bounds)
        self.reason = said or self.reason
        return said is None


def _choices_left(dimension: Dimension, trying: _Trying) -> Dimension | None:
    """Return `dimension` with those of its choices that may work; None when none may."""
    kept = tuple(value for value in dimension.choices if trying.works(value))
    return dimension.model_copy(update={"choices": kept}) if kept else None


def _range_left(dimension: Dimension, trying: _Trying) -> Dimension | None:
    """Return `dimension` without the ends that cannot work; None when nothing is left of it."""
    values: list[float] = [value for value in dimension.grid if not isinstance(value, str)]
    low = _first_that_works(values, trying, dimension)
    if low is None:
        return None
    high = _first_that_works([value for value in reversed(values) if value >= low], trying, dimension)
    return dimension.model_copy(update={"low": float(low), "high": float(low if high is None else high)})


def _first_that_works(values: list[float], trying: _Trying, dimension: Dimension) -> float | None:
    """Return the first of `values` that may work, or on a scale without steps the end of what may."""
    refused: float | None = None
    for value in values:
        if trying.works(value):
            return value if refused is None or dimension.step is not None else _edge(value, refused, trying, dimension)
        refused = value
    return None


def _edge(works: float, refused: float, trying: _Trying, dimension: Dimension) -> float:
    """Return the last value from `works` on towards `refused` that may work, to a thousandth or a whole number."""
    while abs(refused - works) > (1 if dimension.whole else abs(works) * EDGE):
        middle = (works + refused) // 2 if dimension.whole else (works + refused) / 2
        works, refused = (middle, refused) if trying.works(middle) else (works, middle)
    return works


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
