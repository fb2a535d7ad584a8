"""The search space: which flags may vary, over what, and when.

Without HiCache its flags do not exist, so they are only asked for when it is on. A proposal is made canonical at
once, so that two proposals which give the same server are recognised as one setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Self

import optuna
from pydantic import model_validator

from harness.engine.setting import Setting, canonical_transfer
from scenarios.errors import ConfigError
from scenarios.strict import StrictModel, nearest

Choice = bool | int | float | str

TRANSFERS = ("kernel/page_first", "kernel/layer_first", "direct/layer_first", "direct/page_first_direct")
"""The four pairs of io backend and memory layout that SGLang keeps apart without a storage tier."""
WRITE_POLICIES = ("write_through", "write_through_selective", "write_back")


class Dimension(StrictModel):
    """One flag and its values: either `choices`, or numbers from `low` to `high` in steps of `step`."""

    name: str
    choices: tuple[Choice, ...] = ()
    low: float | None = None
    high: float | None = None
    step: float | None = None
    needs_hicache: bool = False

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.choices:
            return self
        if self.low is None or self.high is None or self.step is None:
            raise ValueError("give either choices or low, high and step")
        if self.low > self.high or self.step <= 0:
            raise ValueError(f"{self.low:g}:{self.high:g}:{self.step:g} is empty; give LOW <= HIGH and STEP > 0")
        return self

    @property
    def values_text(self) -> str:
        """Write the values as the user would."""
        if self.choices:
            words = {True: "on", False: "off"}
            return ",".join(words[c] if isinstance(c, bool) else str(c) for c in self.choices)
        return f"{self.low:g}:{self.high:g}:{self.step:g}"

    @property
    def ends(self) -> tuple[Choice, ...]:
        """The values whose check tells for all: every choice, or both ends of a range."""
        if self.choices or self.low is None or self.high is None:
            return self.choices
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    @property
    def whole(self) -> bool:
        """Whether this is a range of whole numbers."""
        return not self.choices and all(float(x or 0).is_integer() for x in (self.low, self.high, self.step))

    def suggest(self, trial: optuna.Trial) -> Choice:
        """Ask Optuna for a value."""
        if self.choices:
            chosen: Choice = trial.suggest_categorical(self.name, self.choices)  # type: ignore[assignment]
            return chosen
        if self.low is None or self.high is None or self.step is None:
            raise ValueError(self.name)
        if self.whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high), step=int(self.step))
        return round(trial.suggest_float(self.name, self.low, self.high, step=self.step), 6)


class Space(StrictModel):
    """The dimensions of one study, asked for in order."""

    dimensions: tuple[Dimension, ...]

    def propose(self, trial: optuna.Trial) -> Setting:
        """Ask Optuna for a canonical setting."""
        values: dict[str, Any] = {}
        for dimension in self.dimensions:
            if not dimension.needs_hicache or values.get("hicache"):
                values[dimension.name] = dimension.suggest(trial)
        return setting_of(values)


def setting_of(values: dict[str, Any]) -> Setting:
    """Make the canonical setting of proposed values; names that are no field of Setting are further engine flags."""
    known = {name: value for name, value in values.items() if name in Setting.model_fields}
    if "transfer" in values:
        io_backend, layout = str(values["transfer"]).split("/")
        known |= {"hicache_io_backend": io_backend, "hicache_mem_layout": layout}
    extra = {name: value for name, value in values.items() if name not in Setting.model_fields and name != "transfer"}
    return Setting.parse({**known, "extra": extra}, where="setting").canonical()


def only(setting: Setting) -> Space:
    """Return the space that holds `setting` alone, for an engine that nothing restarts."""
    values: dict[str, Choice] = {"hicache": setting.hicache}
    for name in type(setting).model_fields:
        value = getattr(setting, name)
        if name not in ("hicache", "hicache_io_backend", "hicache_mem_layout", "extra") and value is not None:
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
        needs = dimension.name.startswith("hicache_") or dimension.name == "transfer"
        dimensions[dimension.name] = Dimension(name=dimension.name, choices=choices, needs_hicache=needs)
    return Space(dimensions=tuple(dimensions.values()))


def one_setting(space: Space) -> Setting:
    """Return the only setting of `space`; raise ConfigError that names a flag with several values."""
    values: dict[str, Any] = {}
    for dimension in space.dimensions:
        if dimension.needs_hicache and not values.get("hicache"):
            continue
        if len(dimension.choices) != 1:
            flag = f"--{dimension.name.replace('_', '-')}"
            raise ConfigError(f"{flag} {dimension.values_text}: find-limit measures one setting; give one value")
        values[dimension.name] = dimension.choices[0]
    return setting_of(values)


class Ranges(StrictModel):
    """What the user may say of the space, each as LOW:HIGH[:STEP], a comma list, or one value; None is our default."""

    hicache: str = "off,on"
    mem_fraction_static: str | None = None
    hicache_ratio: str | None = None
    hicache_size: str | None = None
    hicache_write_policy: str | None = None
    transfer: str | None = None
    page_size: str | None = None

    def space(self, further: Sequence[str] = ()) -> Space:
        """Build the space; raise ConfigError that names the flag at fault.

        `further` are engine flags to search besides, each as `NAME=VALUES`, such as `schedule-policy=fcfs,lpm`.
        """
        switch = _choices("hicache", self.hicache, ("off", "on"))
        dimensions = [Dimension(name="hicache", choices=tuple(word == "on" for word in switch))]
        if self.mem_fraction_static:
            dimensions.append(_numbers("mem_fraction_static", self.mem_fraction_static, step=0.01))
        if self.page_size:
            dimensions.append(_numbers("page_size", self.page_size, step=1))
        if self.hicache_ratio and self.hicache_size:
            raise ConfigError(
                "--hicache-ratio and --hicache-size are both given; SGLang ignores the ratio, so keep one"
            )
        if self.hicache_size:
            dimensions.append(_numbers("hicache_size", self.hicache_size, step=1, needs_hicache=True))
        elif self.hicache_ratio:
            dimensions.append(_numbers("hicache_ratio", self.hicache_ratio, step=0.5, needs_hicache=True))
        if self.hicache_write_policy:
            policies = _choices("hicache_write_policy", self.hicache_write_policy, WRITE_POLICIES)
            dimensions.append(Dimension(name="hicache_write_policy", choices=policies, needs_hicache=True))
        if self.transfer:
            dimensions.append(Dimension(name="transfer", choices=_transfers(self.transfer), needs_hicache=True))
        dimensions += map(_further, further)
        _refuse_twice([dimension.name for dimension in dimensions])
        return Space(dimensions=tuple(dimensions))


Engine = Literal["local", "docker", "attach", "cpu"]
"""How an engine comes to be: started here, in a container, by somebody else, or here on CPU."""

GPU_RANGES = Ranges(
    mem_fraction_static="0.70:0.92:0.02",
    hicache_ratio="1.5:6:0.5",
    hicache_write_policy=",".join(WRITE_POLICIES),
    transfer=",".join(TRANSFERS),
    page_size="1,16,32,64",
)
DEFAULT_RANGES: dict[Engine, Ranges] = {
    "local": GPU_RANGES,
    "docker": GPU_RANGES,
    "attach": GPU_RANGES,
    "cpu": Ranges(
        mem_fraction_static="0.84:0.92:0.02",
        hicache_ratio="1.5:6:0.5",
        hicache_write_policy=",".join(WRITE_POLICIES),
        transfer=",".join(TRANSFERS),
        page_size="16,32",
    ),
}


def _further(text: str) -> Dimension:
    """Read one further engine flag to search, as NAME=VALUES; a switch is searched over `off,on`."""
    name, separator, values = text.removeprefix("--").partition("=")
    if not separator or not name or not values:
        raise ConfigError(f"--search {text}: give NAME=VALUES, such as schedule-policy=fcfs,lpm")
    if name in ("hicache-io-backend", "hicache-mem-layout"):
        raise ConfigError(
            f"--search {text}: io backend and layout are searched as a pair; give --transfer IO_BACKEND/MEM_LAYOUT"
        )
    if name == "enable-hierarchical-cache" or name.replace("-", "_") in Setting.model_fields:
        own = "--hicache" if name == "enable-hierarchical-cache" else f"--{name}"
        raise ConfigError(f"--search {text}: {own} is a flag of its own here; give {own} {values}")
    needs_hicache = name.startswith("hicache-")
    words = tuple(dict.fromkeys(word.strip() for word in values.split(",")))
    if set(words) <= {"off", "on"}:
        return Dimension(name=name, choices=tuple(word == "on" for word in words), needs_hicache=needs_hicache)
    if ":" in values or all(map(_is_number, words)):
        return _numbers(name, values, step=1, needs_hicache=needs_hicache)
    return Dimension(name=name, choices=words, needs_hicache=needs_hicache)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _refuse_twice(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--search {name}: it is given twice; give all its values at once")


def _numbers(name: str, text: str, *, step: float, needs_hicache: bool = False) -> Dimension:
    """Read numbers; a range ends at its last step, so that no value lies outside the grid."""
    flag, separator = f"--{name.replace('_', '-')}", ":" if ":" in text else ","
    try:
        parts = [_finite(part) for part in text.split(separator)]
    except ValueError:
        raise ConfigError(f"{flag} {text}: not a number; give LOW:HIGH[:STEP], a comma list, or one value") from None
    if separator == ",":
        choices = tuple(dict.fromkeys(int(part) if part.is_integer() else part for part in parts))
        _check_values(name, choices, where=f"{flag} {text}")
        return Dimension(name=name, choices=choices, needs_hicache=needs_hicache)
    if len(parts) > 3:
        raise ConfigError(f"{flag} {text}: give LOW:HIGH or LOW:HIGH:STEP")
    low, high, step = (*parts, step)[:3]
    if low <= high and step > 0:
        high = round(low + math.floor((high - low) / step + 1e-9) * step, 6)
    found = Dimension.parse(
        {"name": name, "low": low, "high": high, "step": step, "needs_hicache": needs_hicache}, where=flag
    )
    _check_values(name, (low, min(low + step, high), high), where=f"{flag} {text}")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _check_values(name: str, values: tuple[float, ...], *, where: str) -> None:
    """Raise ConfigError now for a value that no setting can have, not when it is proposed in the middle of a search."""
    for value in values if name in Setting.model_fields else ():
        Setting.parse({"hicache": True, name: value}, where=where)


def _choices(name: str, text: str, valid: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in valid:
            raise ConfigError(f"--{name.replace('_', '-')}: unknown value `{word}`{nearest(word, list(valid))}")
    return tuple(dict.fromkeys(words))


def _transfers(text: str) -> tuple[str, ...]:
    """Read pairs `io/layout`; pairs that SGLang would rewrite to another one are named by what they become."""
    known = {
        f"{io}/{layout}" for io in ("kernel", "direct") for layout in ("layer_first", "page_first", "page_first_direct")
    }
    words = _choices("transfer", text, tuple(sorted(known)))
    pairs = (canonical_transfer(*word.split("/")) for word in words)  # type: ignore[arg-type]
    return tuple(dict.fromkeys("/".join(pair) for pair in pairs))
