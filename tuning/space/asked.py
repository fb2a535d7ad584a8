"""What the user asks of the space, over what a preset has: a flag wins over the file, and that over the preset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuning.space.custom import dimension_name
from tuning.space.dimension import HICACHE, SGLANG_DEFAULT, Choice, Dimension, written
from tuning.space.ranges import Ranges, is_left_out, named
from tuning.space.space import Space, alive, arranged

RIVALS = {"hicache_size": "hicache_ratio", "hicache_ratio": "hicache_size"}
"""SGLang takes one of the two, so whoever gives one displaces the other."""


@dataclass(frozen=True)
class Asked:
    """The user's flags and tables."""

    flags: Mapping[str, str]
    """The flags that are given, by their field of Ranges."""
    further: Sequence[str] = ()
    """Further engine flags, each as NAME=VALUES."""
    own: Sequence[Dimension] = ()
    """The tables of the file."""
    fixed: Mapping[str, Choice] = field(default_factory=dict)
    """Flags of every launch, by name without dashes."""

    def space(self, preset: Sequence[Dimension]) -> Space:
        """Return the space; raise ConfigError that names the flag at fault."""
        asked, left_out = self._asked()
        fixed = {dimension_name(name): value for name, value in self.fixed.items()}
        gone = {*left_out, *fixed, *(RIVALS.get(name, "") for name in asked)}
        merged = {d.name: d for d in preset if d.name not in gone} | asked
        known = fixed | dict.fromkeys(left_out, SGLANG_DEFAULT)
        settled = list(_settled(merged.values(), {name: known[name] for name in known.keys() - merged.keys()}))
        # A preset's dimension goes with what it depends on; what the user has misspelt is told.
        living = alive(settled)
        return arranged(dimension for dimension in settled if dimension.name in asked or dimension in living)

    def _asked(self) -> tuple[dict[str, Dimension], set[str]]:
        """Return the dimensions that the user asks for, and the names that are to be left to SGLang."""
        left_out = {name for name, text in self.flags.items() if is_left_out(text) and name != HICACHE}
        searched = {name: text for name, text in self.flags.items() if name not in left_out}
        left_out |= {named(text) for text in self.further if is_left_out(text.partition("=")[2])}
        further = [text for text in self.further if named(text) not in left_out]
        flags = {dimension.name: dimension for dimension in Ranges(**searched).dimensions(further)}
        gone = left_out | {RIVALS.get(name, "") for name in flags}
        return {d.name: d for d in self.own if d.name not in gone} | flags, left_out


def _settled(dimensions: Iterable[Dimension], known: Mapping[str, Choice]) -> Iterable[Dimension]:
    """Yield the dimensions without the conditions that hold in every trial, and none whose condition never does."""
    for dimension in dimensions:
        of_known = [condition for condition in dimension.when if condition.name in known]
        if all(written(known[c.name]) in map(written, c.values) for c in of_known):
            yield dimension.model_copy(update={"when": tuple(c for c in dimension.when if c not in of_known)})
