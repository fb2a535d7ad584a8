"""Flags from `hicache-tune.toml` and from HICACHE_TUNE_* variables: what is misspelled there must not pass unseen.

A flag wins over its variable, that over the file, that over the default. The variable of `--load-limit` is
HICACHE_TUNE_LOAD_LIMIT, for each command that has the flag; its key in the file is `load-limit` or `load_limit`, in
the table of the command: `[search]`, `[scenario.show]`. What is no flag are the tables `[[search.dimension]]`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection
from cyclopts.config import Dict, Env

from scenarios.errors import ConfigError
from scenarios.strict import nearest
from tuning.space import Dimension, dimensions_of

CONFIG_FILE = "hicache-tune.toml"
PREFIX = "HICACHE_TUNE_"
OTHER_VARIABLES = (f"{PREFIX}CPU_", f"{PREFIX}TEST_")
"""Variables of the CPU engine and of the tests, which are no flags."""

SEARCH, DIMENSION = "search", "dimension"


def from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give the flags of the file to the command that runs."""
    flags = {command: _flags_in(table) for command, table in _read().items()}
    Dict(flags, source=str(Path(CONFIG_FILE).absolute()))(app, commands, arguments)


SOURCES = (Env(PREFIX, command=False), from_file)


def own_dimensions() -> list[Dimension]:
    """Read the tables `[[search.dimension]]`; raise ConfigError that names the table and the key at fault."""
    search = _read().get(SEARCH)
    tables = search.get(DIMENSION, []) if isinstance(search, dict) else []
    where = f"{CONFIG_FILE}, [[{SEARCH}.{DIMENSION}]]"
    if not isinstance(tables, list):
        raise ConfigError(f"{where}: each dimension is a table of its own; write it below [[{SEARCH}.{DIMENSION}]]")
    return dimensions_of(tables, where=where)


def check_sources(app: App) -> None:
    """Raise ConfigError for an unreadable file, or for a name in it or in the environment that is no flag."""
    _check_table(_read(), app, where=CONFIG_FILE)
    own_dimensions()
    known = {PREFIX + flag.replace("-", "_").upper() for flag in _all_flags(app)}
    for variable in sorted(os.environ):
        if variable.startswith(PREFIX) and variable not in known and not variable.startswith(OTHER_VARIABLES):
            raise ConfigError(f"unknown variable {variable} in the environment{nearest(variable, known)}")


def _read() -> dict[str, Any]:
    path = Path(CONFIG_FILE)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise ConfigError(f"{path}: cannot be read ({problem.strerror}); allow it or remove it") from None
    except ValueError as problem:
        raise ConfigError(f"{path}: not valid TOML ({problem}); correct it there") from None


def _check_table(table: dict[str, Any], app: App, *, where: str) -> None:
    commands = _commands_of(app)
    known = commands or _flags_of(app) | ({DIMENSION} if app.name == (SEARCH,) else set())
    for key, value in table.items():
        if (key if commands else key.replace("_", "-")) not in known:
            raise ConfigError(f"{where}: unknown key `{key}`{nearest(key, known)}")
        if key in commands:
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: `{key}` is a command; write its flags below [{key}]")
            _check_table(value, commands[key], where=f"{where}, [{key}]")


def _flags_in(table: Any) -> Any:
    """Leave out what is no flag."""
    return {key: value for key, value in table.items() if key != DIMENSION} if isinstance(table, dict) else table


def _all_flags(app: App) -> Iterator[str]:
    yield from _flags_of(app)
    for command in _commands_of(app).values():
        yield from _all_flags(command)


def _commands_of(app: App) -> dict[str, App]:
    return {name: app[name] for name in app if not name.startswith("-")}


def _flags_of(app: App) -> set[str]:
    if _commands_of(app):
        return set()
    return {argument.name.removeprefix("--") for argument in app.assemble_argument_collection() if argument.show}
