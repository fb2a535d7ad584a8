"""A file of launch flags, one on each line and quoted as for a shell, and the patch that changes it.

Lines of other flags, comments and blank lines stay as they are.
"""

from __future__ import annotations

import difflib
import io
import shlex
from collections.abc import Iterable, Iterator, Set

from harness.errors import ConfigError
from tuning.nightly.launch_words import LaunchWords


def text_of(launch: LaunchWords, where: str) -> str:
    """Write the flags of a launch as such a file."""
    return "".join(_line(words, where) for words in launch.flags.values())


def edited(text: str, current: LaunchWords, proposed: LaunchWords, where: str) -> str:
    """Change those lines of the file that differ; raise ConfigError when it does not say what `current` says."""
    replaced = {name for name, words in current.flags.items() if proposed.flags.get(name) != words}
    added = [words for name, words in proposed.flags.items() if name not in current.flags]
    lines: list[str] = []
    missing = set(replaced)
    for number, line in enumerate(_lines(text), 1):
        found = _flags_in(line, f"{where} line {number}")
        _check(found, current, replaced, proposed, f"{where} line {number}")
        missing -= found.flags.keys()
        if replaced.isdisjoint(found.flags):
            lines.append(line)
        else:
            kept = [proposed.flags.get(name) if name in replaced else words for name, words in found.flags.items()]
            lines.extend(_line(words, where) for words in kept if words is not None)
    for name in sorted(missing):
        raise _does_not_fit(where, f"has no {shlex.join(current.flags[name])}, which production was measured with")
    if added and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, *(_line(words, where) for words in added)])


def _check(found: LaunchWords, current: LaunchWords, replaced: Set[str], proposed: LaunchWords, where: str) -> None:
    """Refuse a line of which it would be a guess what to make."""
    for name, words in found.flags.items():
        if name in replaced and words != current.flags[name]:
            measured = shlex.join(current.flags[name])
            raise _does_not_fit(where, f"says {shlex.join(words)}, production was measured with {measured}")
        if name in proposed.flags and name not in current.flags:
            raise _does_not_fit(where, f"says {shlex.join(words)}, production was measured without")
    if found.program:
        raise ConfigError(f"{where}: {shlex.join(found.program)} is no flag; name a file that has flags alone")


def _does_not_fit(where: str, how: str) -> ConfigError:
    return ConfigError(f"{where}: {how}; correct the one that is wrong, then the night can propose a patch")


def patch(name: str, old: str, new: str) -> str:
    """Return the unified diff of a file, for `patch --strip=1` and `git apply`."""
    if " " in name:
        name += "\t"  # where the name ends, as GNU diff tells it
    return "".join(_ended(difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}")))


def _lines(text: str) -> list[str]:
    """Split at line feeds alone, as `patch` does."""
    return list(io.StringIO(text, newline="\n"))


def _flags_in(line: str, where: str) -> LaunchWords:
    try:
        return LaunchWords.of(shlex.split(line.rstrip("\n"), comments=True))
    except ValueError as problem:
        raise ConfigError(f"{where}: {problem}; write one flag on each line, quoted as for a shell") from None


def _line(words: tuple[str, ...], where: str) -> str:
    if any("\n" in word for word in words):
        raise ConfigError(f"{where}: cannot hold the line break in the value of {words[0]}; choose another form")
    return shlex.join(words) + "\n"


def _ended(diff: Iterable[str]) -> Iterator[str]:
    for line in diff:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
