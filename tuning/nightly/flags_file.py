"""A file of launch flags, one on each line and quoted as for a shell, and the patch that changes it.

Lines of other flags, comments and blank lines stay as they are.
"""

from __future__ import annotations

import difflib
import io
import shlex
from collections.abc import Iterable, Iterator

from harness.errors import ConfigError
from tuning.nightly.launch_words import Change, Flags, LaunchWords


def text_of(flags: Flags, where: str) -> str:
    """Write flags as such a file."""
    return "".join(_line(words, where) for words in flags.values())


def edited(text: str, change: Change, where: str) -> str:
    """Make the change in the lines that it is about; raise ConfigError when the file does not say what changes."""
    lines: list[str] = []
    seen: set[str] = set()
    for number, line in enumerate(_lines(text), 1):
        flags = _flags_in(line, f"{where} line {number}")
        changed = change.made_in(flags, f"{where} line {number}")
        seen |= flags.keys()
        lines.append(line if changed == flags else text_of(changed, where))
    coming = text_of(change.coming(seen, where), where)
    if coming and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, coming])


def patch(name: str, old: str, new: str) -> str:
    """Return the unified diff of a file, for `patch --strip=1` and `git apply`."""
    if " " in name:
        name += "\t"  # where the name ends, as GNU diff tells it
    return "".join(_ended(difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}")))


def _lines(text: str) -> list[str]:
    """Split at line feeds alone, as `patch` does."""
    return list(io.StringIO(text, newline="\n"))


def _flags_in(line: str, where: str) -> Flags:
    try:
        found = LaunchWords.of(shlex.split(line.rstrip("\n"), comments=True))
    except ValueError as problem:
        raise ConfigError(f"{where}: {problem}; write one flag on each line, quoted as for a shell") from None
    if found.program:
        raise ConfigError(f"{where}: {shlex.join(found.program)} is no flag; name a file that has flags alone")
    return found.flags


def _line(words: tuple[str, ...], where: str) -> str:
    if any("\n" in word for word in words):
        raise ConfigError(f"{where}: cannot hold the line break in the value of {words[0]}; choose another form")
    return shlex.join(words) + "\n"


def _ended(diff: Iterable[str]) -> Iterator[str]:
    for line in diff:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
