"""How words are written in unit files of systemd, so that it reads back exactly what was meant."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BARE = re.compile(r"[A-Za-z0-9_+=:,./@-]+")


def path_value(path: str) -> str:
    """Write a path as the value of a setting that takes one path, such as WorkingDirectory=."""
    return path.replace("%", "%%")


def path_list(paths: Sequence[str]) -> str:
    """Write paths as the value of a setting that takes several, such as ReadWritePaths=."""
    return " ".join(_quoted(path_value(path)) for path in paths)


def command_line(words: Sequence[str]) -> str:
    """Write a command as the value of ExecStart=, each flag on a line of its own.

    systemd knows no shell, but quotes, escapes, specifiers (%) and variables ($), the last not in the program's name.
    """
    program, *others = words
    text = _quoted(path_value(program))
    for word in others:
        text += (" \\\n  " if word.startswith("--") else " ") + _quoted(path_value(word).replace("$", "$$"))
    return text


def _quoted(word: str) -> str:
    if _BARE.fullmatch(word):
        return word
    return '"' + "".join(map(_escaped, word)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return f"\\x{ord(character):02x}" if ord(character) < 0x20 or ord(character) == 0x7F else character
