"""What the user may say of the search space on the command line, and the dimensions that come out of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.engine.setting import Setting
from scenarios.errors import ConfigError
from scenarios.strict import StrictModel, nearest
from tuning.space.dimension import HICACHE, SGLANG_DEFAULT, Dimension
from tuning.space.space import Space, arranged, flag_of
from tuning.space.values import TRANSFER, listed, ranged

LOG = "log"
SWITCH = {"off": False, "on": True}


class Ranges(StrictModel):
    """What is searched, each as LOW:HIGH[:STEP], LOW:HIGH:log, a comma list, or one value; None is not searched.

    `default` among the values of a list leaves the flag to SGLang.
    """

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
        return arranged(self.dimensions(further))

    def dimensions(self, further: Sequence[str] = ()) -> list[Dimension]:
        """Read the dimensions; raise ConfigError that names the flag at fault."""
        found = [_switch(self.hicache)]
        if self.mem_fraction_static:
            found.append(_numbers("mem_fraction_static", self.mem_fraction_static, step=0.01))
        if self.page_size:
            found.append(_numbers("page_size", self.page_size, step=1))
        if self.hicache_ratio and self.hicache_size:
            raise ConfigError(
                "--hicache-ratio and --hicache-size are both given; SGLang ignores the ratio, so keep one"
            )
        if self.hicache_size:
            found.append(_numbers("hicache_size", self.hicache_size, step=1))
        elif self.hicache_ratio:
            found.append(_numbers("hicache_ratio", self.hicache_ratio, step=0.5))
        for name, text in (("hicache_write_policy", self.hicache_write_policy), (TRANSFER, self.transfer)):
            if text:
                found.append(listed(name, _words(text), where=flag_of(name)))
        found += map(_further, further)
        _refuse_twice([dimension.name for dimension in found])
        return found


def named(text: str) -> str:
    """Return the flag that `NAME=VALUES` names; raise ConfigError when it is none, or has a flag of its own here."""
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
    return name


def is_left_out(text: str) -> bool:
    """Whether the values of a flag are SGLang's own default alone, so that it is not searched."""
    return text in ("", SGLANG_DEFAULT)


def _further(text: str) -> Dimension:
    """Read one further engine flag to search, as NAME=VALUES; a switch is searched over `off,on`."""
    name, values = named(text), text.partition("=")[2]
    words = _words(values)
    if set(words) <= SWITCH.keys():
        return listed(name, [SWITCH[word] for word in words], where=f"--search {text}")
    if ":" in values or all(_is_number(word) for word in words if word != SGLANG_DEFAULT):
        return _numbers(name, values, step=1)
    return listed(name, words, where=f"--search {text}")


def _switch(text: str) -> Dimension:
    words = _words(text)
    for word in words:
        if word not in SWITCH:
            raise ConfigError(f"{flag_of(HICACHE)}: unknown value `{word}`{nearest(word, SWITCH)}")
    return listed(HICACHE, [SWITCH[word] for word in words], where=flag_of(HICACHE))


def _numbers(name: str, text: str, *, step: float) -> Dimension:
    """Read numbers: a range, whose steps are `step` when it names none, or a list."""
    where = f"{flag_of(name)} {text}"
    parts = text.split(":" if ":" in text else ",")
    is_log = len(parts) == 3 and parts[-1].strip() == LOG and ":" in text
    try:
        if ":" not in text:
            return listed(name, [_number(part) for part in parts], where=where)
        ends = [_finite(part) for part in (parts[:2] if is_log else parts)]
    except ValueError:
        raise ConfigError(f"{where}: not a number; give LOW:HIGH[:STEP], a comma list, or one value") from None
    if len(ends) > 3:
        raise ConfigError(f"{where}: give LOW:HIGH, LOW:HIGH:STEP or LOW:HIGH:{LOG}")
    low, high, by = (*ends, step)[:3]
    return ranged(name, low, high, None if is_log else by, where=where)


def _number(text: str) -> int | float | str:
    """Read one number of a list, or `default`; raise ValueError for anything else."""
    if text.strip() == SGLANG_DEFAULT:
        return SGLANG_DEFAULT
    number = _finite(text)
    return int(number) if number.is_integer() else number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _refuse_twice(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--search {name}: it is given twice; give all its values at once")
