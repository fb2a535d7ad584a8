"""The engine's command-line flags as its own argument parser declares them, and the check of flags against them.

A flag that the engine does not know costs a launch to find out, and one that argparse completes silently may be
another flag than the user meant. So both are refused here, before anything is launched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from harness.engine.old_names import today, warning
from harness.engine.surroundings import FlagValue
from harness.errors import ConfigError
from scenarios.strict import StrictModel, nearest

Kind = Literal["switch", "int", "human_int", "float", "json", "text"]

KIND_WORDS: dict[Kind, str] = {
    "int": "a whole number",
    "human_int": "a whole number, also as 64k or 64Ki",
    "float": "a number",
    "json": "JSON",
}
SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
"""As SGLang's `human_readable_int` reads them: case counts, and decimals are for those without an i."""

OURS: Mapping[str, str] = {
    "model-path": "give the model with --model",
    "host": "leave it out; the engine listens on loopback",
    "port": "leave it out; every launch gets a port that is free",
    "tp-size": "give --tp-size itself, from which host memory is predicted",
    "dp-size": "give --dp-size itself, from which host memory is predicted",
}
"""Flags that the harness sets itself, and what to do instead."""
SEARCHED: Mapping[str, str] = {
    "enable-hierarchical-cache": "give `--hicache on` for trials with it alone",
    "hicache-ratio": "give --hicache-ratio itself",
    "hicache-size": "give --hicache-size itself",
    "hicache-write-policy": "give --hicache-write-policy itself",
    "hicache-io-backend": "give --transfer IO_BACKEND/MEM_LAYOUT",
    "hicache-mem-layout": "give --transfer IO_BACKEND/MEM_LAYOUT",
}
"""Flags that, given for every launch of a search, would undo what a trial is about."""


class Flag(StrictModel):
    """One flag; names have no dashes in front."""

    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind = "text"
    choices: tuple[FlagValue, ...] = ()
    default: FlagValue | None = None
    """What the engine's parser says; None where it computes the value later or has none."""
    many: bool = False
    deprecated: bool = False

    def read(self, text: str) -> FlagValue:
        """Read a value as the engine would; raise ValueError with what is valid."""
        value: FlagValue = text
        try:
            if self.kind == "int":
                value = int(text)
            elif self.kind == "human_int":
                value = human_int(text)
            elif self.kind == "float":
                value = float(text)
            elif self.kind == "json":
                json.loads(text)
        except ValueError:
            raise ValueError(f"`{text}` is not {KIND_WORDS[self.kind]}") from None
        if self.choices and value not in self.choices:
            raise ValueError(f"unknown value `{text}`{nearest(text, map(str, self.choices))}")
        return value


class FlagTable(StrictModel):
    """All flags of one SGLang version, and where that is known from."""

    sglang_version: str
    flags: tuple[Flag, ...]
    provenance: str = ""
    exact: bool = True
    """Whether these are the flags of the engine at hand; else they are those of the nearest version known here."""

    def find(self, name: str) -> Flag | None:
        """Return the flag of this name or alias."""
        return next((flag for flag in self.flags if name == flag.name or name in flag.aliases), None)

    def names(self) -> list[str]:
        """List every name and alias."""
        return [name for flag in self.flags for name in (flag.name, *flag.aliases)]


@dataclass(frozen=True)
class GivenFlag:
    """One flag as it stands on a command line: its value is None for a switch."""

    name: str
    values: tuple[str, ...]

    @property
    def value(self) -> FlagValue:
        """The value as written, or True for a switch."""
        return " ".join(self.values) if self.values else True


@dataclass(frozen=True)
class CheckedArguments:
    """Arguments that the engine will take, and what the user should know of them."""

    arguments: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def split_arguments(arguments: Sequence[str]) -> Iterator[GivenFlag]:
    """Read arguments as argparse does: `--flag=value`, or `--flag` followed by its values.

    Raises ConfigError for a value that no flag stands before.
    """
    name, values = "", list[str]()
    for argument in arguments:
        if argument.startswith("--"):
            if name:
                yield GivenFlag(name, tuple(values))
            name, separator, value = argument[2:].partition("=")
            values = [value] if separator else []
        elif not name:
            raise ConfigError(f"--engine-arg={argument}: no flag stands before this value; write it as --flag=value")
        else:
            values.append(argument)
    if name:
        yield GivenFlag(name, tuple(values))


def check_arguments(arguments: Sequence[str], table: FlagTable, *, searched: bool = True) -> CheckedArguments:
    """Check further engine flags against the engine's own; raise ConfigError that names the flag and the nearest.

    In a search (`searched`) the flags of HiCache are not among them.

    Names of older writings become today's, with a warning. Against a table of another version an unknown
    name is a warning too, as the engine at hand may have it.
    """
    checked, warnings = list[str](), list[str]()
    for given in split_arguments(arguments):
        if table.find(given.name) is None and table.find(new := today(given.name)) is not None:
            warnings.append(warning(given.name, new))
            given = GivenFlag(new, given.values)
        flag = table.find(given.name)
        _refuse_ours(given.name, flag.name if flag else given.name, searched=searched)
        if flag is None:
            warnings.append(_unknown(given, table))
        else:
            _check(given, flag)
            if flag.deprecated:
                warnings.append(f"--engine-arg=--{given.name}: SGLang {table.sglang_version} calls it deprecated")
        checked += _written(given, many=flag is not None and flag.many)
    return CheckedArguments(tuple(checked), tuple(warnings))


def check_flag(name: str, value: FlagValue, table: FlagTable, *, where: str) -> None:
    """Check one flag of a search; raise ConfigError that names `where` and what is valid."""
    flag = table.find(name)
    if flag is None:
        if table.exact:
            raise ConfigError(f"{where}: SGLang {table.sglang_version} has no --{name}{nearest(name, table.names())}")
        return
    if flag.kind == "switch":
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: --{name} is a switch; give on or off")
        return
    try:
        flag.read(str(value))
    except ValueError as problem:
        raise ConfigError(f"{where}: {problem}") from None


def _refuse_ours(given: str, name: str, *, searched: bool) -> None:
    if name in OURS:
        raise ConfigError(f"--engine-arg=--{given}: {OURS[name]}")
    if searched and name in SEARCHED:
        raise ConfigError(f"--engine-arg=--{given}: HiCache is what is searched; {SEARCHED[name]}")


def _unknown(given: GivenFlag, table: FlagTable) -> str:
    """Raise ConfigError for a name that the engine does not have; return a warning when that is not sure."""
    near = nearest(given.name, table.names())
    near = near if near.startswith("; did you mean") else "; see `python -m sglang.launch_server --help`"
    said = f"--engine-arg=--{given.name}: SGLang {table.sglang_version} has no such flag{near}"
    if table.exact:
        raise ConfigError(said)
    return f"{said} (the flags of the installed SGLang could not be read)"


def _check(given: GivenFlag, flag: Flag) -> None:
    where = f"--engine-arg=--{given.name}"
    if flag.kind == "switch":
        if given.values:
            raise ConfigError(f"{where}={given.values[0]}: it is a switch and takes no value; leave `=...` out")
        return
    if not given.values:
        raise ConfigError(f"{where}: its value is missing; write {where}=VALUE")
    if len(given.values) > 1 and not flag.many:
        raise ConfigError(f"{where}: it takes one value and has {len(given.values)}; keep one")
    for value in given.values:
        try:
            flag.read(value)
        except ValueError as problem:
            raise ConfigError(f"{where}={value}: {problem}") from None


def _written(given: GivenFlag, *, many: bool) -> list[str]:
    if not given.values:
        return [f"--{given.name}"]
    return [f"--{given.name}", *given.values] if many else [f"--{given.name}={given.values[0]}"]


def human_int(text: str) -> int:
    """Read a whole number as SGLang does, also as 64k or 64Ki; raise ValueError for anything else."""
    written = re.fullmatch(r"(\d+)(?:\.(\d+))?(k|M|G|T|Ki|Mi|Gi|Ti)", text.strip())
    if written is None:
        return int(text)
    whole, decimals, suffix = written.groups()
    if decimals and suffix.endswith("i"):
        raise ValueError(text)
    return int(Decimal(f"{whole}.{decimals or 0}") * SUFFIXES[suffix])
