"""Flags from `hicache-tune.toml` and from HICACHE_TUNE_* variables: what is misspelled there must not pass unseen.

A flag wins over its variable, that over the file, that over the default. The variable of `--load-limit` is
HICACHE_TUNE_LOAD_LIMIT, for each command that has the flag; its key in the file is `load-limit` or `load_limit`, in
the table of the command: `[search]`, `[scenario.show]`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.config import Env, Toml

from scenarios.errors import ConfigError
from scenarios.strict import nearest

CONFIG_FILE = "hicache-tune.toml"
PREFIX = "HICACHE_TUNE_"
OTHER_VARIABLES = (f"{PREFIX}CPU_", f"{PREFIX}TEST_")
"""Variables of the CPU engine and of the tests, which are no flags."""

SOURCES = (Env(PREFIX, command=False), Toml(CONFIG_FILE))


def check_sources(app: App) -> None:
    """Raise ConfigError for an unreadable file, or for a name in it or in the environment that is no flag."""
    path = Path(CONFIG_FILE)
    if path.exists():
        _check_table(_read(path), app, where=CONFIG_FILE)
    known = {PREFIX + flag.replace("-", "_").upper() for flag in _all_flags(app)}
    for variable in sorted(os.environ):
        if variable.startswith(PREFIX) and variable not in known and not variable.startswith(OTHER_VARIABLES):
            raise ConfigError(f"unknown variable {variable} in the environment{nearest(variable, known)}")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(f"{path}: cannot be read ({problem.strerror}); allow it or remove it") from None
    except ValueError as problem:
        raise ConfigError(f"{path}: not valid TOML ({problem}); correct it there") from None


def _check_table(table: dict[str, Any], app: App, *, where: str) -> None:
    commands = _commands_of(app)
    known = commands or _flags_of(app)
    for key, value in table.items():
        if (key if commands else key.replace("_", "-")) not in known:
            raise ConfigError(f"{where}: unknown key `{key}`{nearest(key, known)}")
        if key in commands:
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: `{key}` is a command; write its flags below [{key}]")
            _check_table(value, commands[key], where=f"{where}, [{key}]")


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
