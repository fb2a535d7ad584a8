"""The flags, or the whole launch command, that run in production: read as a setting, and as words of a proposal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.engine.flags import OURS, split_arguments
from harness.engine.setting import Setting
from harness.engine.spec import MEASURING_FLAGS
from scenarios.errors import ConfigError
from tuning.nightly.launch_words import Flags, LaunchWords
from tuning.space import setting_of

SECRETS = ("--api-key", "--ssl-keyfile-password")


def production_setting(words: Sequence[str], fixed: Sequence[str] = ()) -> Setting:
    """Read the words as a setting, without what every launch has anyway: `fixed`, and what the harness sets itself.

    Raises ConfigError for a value that a flag cannot have, and for a secret.
    """
    values: dict[str, Any] = {}
    for given in split_arguments(_words(_tuned(words, fixed))):
        if given.name == "enable-hierarchical-cache":
            values["hicache"] = True
        else:
            field = given.name.replace("-", "_")
            values[field if field in Setting.model_fields else given.name] = given.value
    try:
        return setting_of(values)
    except ConfigError as problem:
        raise ConfigError(f"production: {problem}") from None


def tuned_words(words: Sequence[str], fixed: Sequence[str] = ()) -> list[str]:
    """Return the flags that make production's setting, as they are written."""
    return _words(_tuned(words, fixed))


def proposed_words(
    words: Sequence[str], production: Setting, winner: Setting, fixed: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return these flags for another setting; what both settings have in common stays as it is written."""
    written, now = _tuned(words, fixed), dict(production.values())
    proposed: dict[str, tuple[str, ...]] = {}
    for name, value in winner.values():
        if now.get(name) != value:
            proposed[f"--{name}"] = (f"--{name}",) if value is True else (f"--{name}", str(value))
        elif f"--{name}" in written:
            proposed[f"--{name}"] = written[f"--{name}"]
    return tuple(_words(proposed))


def _tuned(words: Sequence[str], fixed: Sequence[str]) -> Flags:
    anyway = {f"--{name}" for name in (*OURS, *(given.name for given in split_arguments((*fixed, *MEASURING_FLAGS))))}
    flags = LaunchWords.of(words).flags
    for secret in SECRETS:
        if secret in flags:
            raise ConfigError(f"production: {secret} is a secret, and none is needed here; leave it out")
    return {name: written for name, written in flags.items() if name not in anyway}


def _words(flags: Flags) -> list[str]:
    return [word for written in flags.values() for word in written]
