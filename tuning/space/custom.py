"""Dimensions of the user's own, as tables in `hicache-tune.toml`: any engine flag, with a condition where it has one.

```toml
[[search.dimension]]
flag = "max-running-requests"
type = "int"
range = [16, 512]
log = true
when = { schedule-policy = "lpm" }
```
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from scenarios.strict import StrictModel
from tuning.space.dimension import HICACHE, SGLANG_DEFAULT, Choice, Condition, Dimension
from tuning.space.values import TRANSFER, listed, ranged

Type = Literal["int", "float", "categorical", "switch"]
SWITCH: dict[Choice, bool] = {"off": False, "on": True}
OWN_FLAGS = {
    HICACHE: 'give `hicache = "off,on"` below [search], or --hicache',
    "enable-hierarchical-cache": 'give `hicache = "off,on"` below [search], or --hicache',
    "hicache-io-backend": f"io backend and layout are searched as a pair; give the flag `{TRANSFER}`",
    "hicache-mem-layout": f"io backend and layout are searched as a pair; give the flag `{TRANSFER}`",
}
"""Flags that are no dimension of the user's own, and what to do instead."""


class Table(StrictModel):
    """One `[[search.dimension]]`."""

    flag: str = Field(min_length=1)
    type: Type
    range: tuple[float, float] | None = None
    """Lowest and highest value."""
    step: float | None = None
    """Of a range; 1 for an `int` that has none."""
    log: bool = False
    """Whether the scale of a range is logarithmic."""
    choices: tuple[Choice, ...] = ()
    """The values of a `categorical`, or of numbers in place of a range; `default` leaves the flag to SGLang."""
    when: dict[str, tuple[Choice, ...]] = Field(default_factory=dict)
    """Other flags and the values of which each must have one, for this flag to exist."""

    @field_validator("when", mode="before")
    @classmethod
    def _one_value_is_a_list_of_one(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value if isinstance(value, list | tuple) else (value,) for name, value in given.items()}

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.name in OWN_FLAGS:
            raise ValueError(f"--{self.name} is no dimension of its own: {OWN_FLAGS[self.name]}")
        if self.range is None and (self.step is not None or self.log):
            raise ValueError("`step` and `log` belong to a `range`; give one, or leave them out")
        if self.log and self.step is not None:
            raise ValueError("a logarithmic scale has no step; leave one of the two out")
        if self.type in ("categorical", "switch"):
            self._fits_words()
        else:
            self._fits_numbers()
        return self

    @property
    def name(self) -> str:
        """The flag without dashes in front."""
        return self.flag.removeprefix("--")

    def dimension(self, where: str) -> Dimension:
        """Return the dimension; raise ConfigError that begins with `where`."""
        name = dimension_name(self.name)
        when = [Condition(name=dimension_name(parent), values=values) for parent, values in self.when.items()]
        if self.range is not None:
            step = 1.0 if self.type == "int" and self.step is None and not self.log else self.step
            return ranged(name, *self.range, step, where=where, when=when)
        if self.type == "switch":
            values: list[Choice] = [SWITCH.get(choice, choice) for choice in self.choices or SWITCH]
        elif self.type == "int":
            values = [choice if isinstance(choice, str) else int(choice) for choice in self.choices]
        else:
            values = list(self.choices)
        return listed(name, values, where=where, when=when)

    def _fits_words(self) -> None:
        if self.range is not None:
            raise ValueError(f"a `range` is of numbers; give `choices`, or another type than `{self.type}`")
        if self.type == "categorical" and not self.choices:
            raise ValueError("`choices` are missing; list the values")
        if self.type == "switch" and not all(choice in SWITCH or isinstance(choice, bool) for choice in self.choices):
            raise ValueError("a switch is `off` or `on`; leave `choices` out for both")

    def _fits_numbers(self) -> None:
        if (self.range is None) == (not self.choices):
            raise ValueError("give either `range = [LOW, HIGH]` or `choices`")
        if self.range is not None and self.type == "float" and self.step is None and not self.log:
            raise ValueError("give the `step` of the range, or `log = true`")
        numbers = [*self.choices, *(self.range or ()), *([] if self.step is None else [self.step])]
        for number in numbers:
            if number != SGLANG_DEFAULT and not _is_number(number, whole=self.type == "int"):
                kind = "a whole number" if self.type == "int" else "a number"
                raise ValueError(f"`{number}` is not {kind}")


def dimensions_of(tables: Iterable[Any], *, where: str) -> list[Dimension]:
    """Read the tables; raise ConfigError that names `where`, the table and the key at fault."""
    found: list[Dimension] = []
    for number, data in enumerate(tables, 1):
        flag = data.get("flag", "") if isinstance(data, dict) else ""
        place = f"{where} {number}" + (f" ({flag})" if flag else "")
        found.append(Table.parse(data, where=place).dimension(place))
        if any(dimension.name == found[-1].name for dimension in found[:-1]):
            raise ConfigError(f"{place}: it is given twice; give all its values at once")
    names = {dimension.name for dimension in found}
    if names >= {"hicache_ratio", "hicache_size"}:
        raise ConfigError(f"{where}: SGLang ignores hicache-ratio beside hicache-size; keep one of them")
    return found


def dimension_name(flag: str) -> str:
    """Return the name under which a flag is searched: a field of Setting, or the engine flag itself."""
    field = flag.removeprefix("--").replace("-", "_")
    return field if field in Setting.model_fields else flag.removeprefix("--")


def _is_number(value: Choice, *, whole: bool) -> bool:
    if isinstance(value, bool | str) or not math.isfinite(value):
        return False
    return not whole or float(value).is_integer()
