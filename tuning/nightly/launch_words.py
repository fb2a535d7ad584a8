"""A launch command as a program and its flags, and a change of some flags that can be made wherever they stand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Self

from harness.errors import ConfigError

Flags = Mapping[str, tuple[str, ...]]
"""By name: the flag's own words, the name first."""


@dataclass(frozen=True)
class LaunchWords:
    """A launch command in parts; without a program it is the flags of one."""

    program: tuple[str, ...]
    """What stands before the first flag: `python -m sglang.launch_server`."""
    flags: Flags

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        """Part `words`; of a flag that is given twice the last one counts, as it does for the engine."""
        program: list[str] = []
        flags: dict[str, tuple[str, ...]] = {}
        name = None
        for word in words:
            if word.startswith("--"):
                name = word.partition("=")[0]
                flags.pop(name, None)
                flags[name] = (word,)
            elif name is None:
                program.append(word)
            else:
                flags[name] += (word,)
        return cls(tuple(program), flags)


@dataclass(frozen=True)
class Change:
    """Which flags change; a flag that only comes or only goes is on one side alone."""

    old: Flags
    new: Flags

    @classmethod
    def between(cls, current: Flags, proposed: Flags) -> Self:
        """Leave out what both have."""
        return cls(
            {name: words for name, words in current.items() if proposed.get(name) != words},
            {name: words for name, words in proposed.items() if current.get(name) != words},
        )

    def in_words(self) -> Iterator[str]:
        """Say it, a line for each flag, quoted as for a shell."""
        for name, words in self.old.items():
            if name in self.new:
                yield f"{shlex.join(words)}  becomes  {shlex.join(self.new[name])}"
            else:
                yield f"without {shlex.join(words)}"
        yield from (f"with {shlex.join(words)}" for name, words in self.new.items() if name not in self.old)

    def made_in(self, flags: Flags, where: str) -> Flags:
        """Change a part of the flags; raise ConfigError when production was measured with others than stand there."""
        for name, words in flags.items():
            if name in self.old.keys() | self.new.keys() and words != self.old.get(name):
                measured = f"with {shlex.join(self.old[name])}" if name in self.old else "without it"
                raise _does_not_fit(where, f"says {shlex.join(words)}, production was measured {measured}")
        return {
            name: self.new.get(name, words) for name, words in flags.items() if name in self.new or name not in self.old
        }

    def coming(self, seen: Set[str], where: str) -> Flags:
        """Return the flags to add when all others are `seen`; raise ConfigError when one that changes is not there."""
        for name, words in self.old.items():
            if name not in seen:
                raise _does_not_fit(where, f"has no {shlex.join(words)}, which production was measured with")
        return {name: words for name, words in self.new.items() if name not in self.old}


def _does_not_fit(where: str, how: str) -> ConfigError:
    return ConfigError(f"{where}: {how}; correct the one that is wrong, then the night can propose its flags")
