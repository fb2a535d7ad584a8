"""The flags, or the whole launch command, that run in production: read as a setting, and written with another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harness.engine.flags import OURS, GivenFlag, split_arguments
from harness.engine.setting import Setting
from harness.engine.spec import MEASURING_FLAGS
from scenarios.errors import ConfigError
from tuning.space import setting_of

SECRETS = ("api-key", "keyfile-password")


def program_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words before the first flag; none where flags alone are given."""
    first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    return tuple(words[:first])


def production_setting(words: Sequence[str], fixed: Sequence[str] = ()) -> Setting:
    """Read the words as a setting, without what every launch has anyway: `fixed`, and what the harness sets itself.

    Raises ConfigError for a value that a flag cannot have, and for a secret.
    """
    values: dict[str, Any] = {}
    for given in _flags(words):
        name = given.name.replace("-", "_")
        if given.name in SECRETS:
            raise ConfigError(f"production: --{given.name} is a secret, and none is needed here; leave it out")
        if given.name == "enable-hierarchical-cache":
            values["hicache"] = True
        elif name in Setting.model_fields:
            values[name] = given.value
        elif given.name not in _untouched(fixed):
            values[given.name] = given.value
    try:
        return setting_of(values)
    except ConfigError as problem:
        raise ConfigError(f"production: {problem}") from None


def with_setting(words: Sequence[str], setting: Setting, fixed: Sequence[str] = ()) -> list[str]:
    """Return the words with another setting in place of theirs."""
    kept = [given for given in _flags(words) if given.name in _untouched(fixed)]
    flags = [word for given in kept for word in (f"--{given.name}", *given.values)]
    return [*program_of(words), *flags, *setting.flags()]


def _flags(words: Sequence[str]) -> Iterator[GivenFlag]:
    return split_arguments(words[len(program_of(words)) :])


def _untouched(fixed: Sequence[str]) -> set[str]:
    return {*OURS, *(given.name for given in split_arguments((*fixed, *MEASURING_FLAGS)))}
