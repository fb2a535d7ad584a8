"""Settings as people write them: `off`, `hicache,ratio=4,write_through`, a label of a report, or `my-study:7`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.engine.setting import FlagValue, Setting
from harness.store import read_trials
from scenarios.errors import ConfigError
from scenarios.strict import nearest
from tuning.config import read_study
from tuning.space import TRANSFERS, WRITE_POLICIES, setting_of

OFF, ON = ("off", "baseline", "default"), ("on", "hicache")
"""SGLang's own default is off, which is the baseline of every search."""
SHORT = {
    "ratio": "hicache_ratio",
    "size": "hicache_size",
    "policy": "hicache_write_policy",
    "fraction": "mem_fraction_static",
    "page": "page_size",
}
OF_HICACHE = ("hicache_ratio", "hicache_size", "hicache_write_policy", "transfer")
NAMES = (*OF_HICACHE, "mem_fraction_static", "page_size")
TRIAL = re.compile(r"(?P<study>[A-Za-z0-9][\w.-]*):(?P<number>\d+)")
LABEL_HEAD = re.compile(r"hicache\s+(?=\S)", re.IGNORECASE)
LABEL_SIZE = re.compile(r"(\d+)\s*GB", re.IGNORECASE)
EXAMPLE = "write it as `off`, `hicache,ratio=4,write_through,page=32` or `my-study:7`"


def read_setting(text: str, results: Path) -> Setting:
    """Read a setting, or take that of a trial of a study in `results`; raise ConfigError with what to write."""
    if found := TRIAL.fullmatch(text.strip()):
        return _of_trial(results / found["study"], int(found["number"]))
    values: dict[str, Any] = {}
    for name, value in _pairs(text):
        if name in values:
            raise ConfigError(f"setting `{text}`: {name} is given twice; keep one")
        values[name] = value
    if str(values.get("transfer", "/")).count("/") != 1:
        raise ConfigError(f"setting `{text}`: transfer is IO_BACKEND/MEM_LAYOUT, such as {TRANSFERS[0]}")
    given = [name for name in values if name in OF_HICACHE]
    if values.setdefault("hicache", bool(given)) is False and given:
        raise ConfigError(f"setting `{text}`: without HiCache there is no {given[0]}; leave `off` or the rest out")
    try:
        return setting_of(values)
    except ConfigError as problem:
        raise ConfigError(f"setting `{text}`: {str(problem).removeprefix('setting: ')}") from None


def _pairs(text: str) -> Iterator[tuple[str, FlagValue]]:
    """Yield names and values of the words between commas; what is no name of ours is a further engine flag."""
    for item in text.split(","):
        word = item.strip()
        if LABEL_HEAD.match(word):
            word = LABEL_HEAD.sub("", word, count=1)
            if word != "off":
                yield "hicache", True
        if size := LABEL_SIZE.fullmatch(word):
            yield "hicache_size", int(size[1])
            continue
        name, value = _split(word)
        if value is None:
            yield _bare(name, text)
            continue
        own = SHORT.get(name, name.replace("-", "_"))
        yield (own, value if own == "transfer" else _typed(value)) if own in NAMES else (name, _typed(value))


def _split(word: str) -> tuple[str, str | None]:
    """Take `name=value` or `name value` apart; a lone word has no value."""
    name, *rest = re.split(r"\s*=\s*|\s+", word.removeprefix("--"), maxsplit=1)
    return name, rest[0] if rest else None


def _bare(word: str, text: str) -> tuple[str, FlagValue]:
    if word.lower() in (*OFF, *ON):
        return "hicache", word.lower() in ON
    if word in WRITE_POLICIES:
        return "hicache_write_policy", word
    if word in TRANSFERS:
        return "transfer", word
    if not word:
        raise ConfigError(f"setting `{text}`: a word is missing; {EXAMPLE}")
    known = (*OFF, *ON, *WRITE_POLICIES, *TRANSFERS, *(f"{name}=" for name in SHORT))
    raise ConfigError(f"setting `{text}`: unknown word `{word}`{nearest(word, known)}")


def _typed(value: str) -> FlagValue:
    """Read a value as the type that it looks like: a switch, a number, or text."""
    switches = {"on": True, "true": True, "off": False, "false": False}
    if value.lower() in switches:
        return switches[value.lower()]
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            continue
    return value


def _of_trial(root: Path, number: int) -> Setting:
    read_study(root)
    found = {record.number: record.setting for record in read_trials(root)}
    if number not in found:
        raise ConfigError(f"{root} has no trial {number}; it has {', '.join(map(str, found)) or 'none'}")
    return found[number]
