"""A launch command as a program and its flags, and how two of them differ."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class LaunchWords:
    """A launch command in parts; without a program it is the flags of one."""

    program: tuple[str, ...]
    """What stands before the first flag: `python -m sglang.launch_server`."""
    flags: Mapping[str, tuple[str, ...]]
    """By name: the flag's own words, the name first."""

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

    def changes_to(self, other: Self) -> Iterator[str]:
        """Say what has to be changed to get `other`, a line for each flag, as a shell would be told."""
        for name, words in self.flags.items():
            if name not in other.flags:
                yield f"without {shlex.join(words)}"
            elif other.flags[name] != words:
                yield f"{shlex.join(words)}  becomes  {shlex.join(other.flags[name])}"
        for name, words in other.flags.items():
            if name not in self.flags:
                yield f"with {shlex.join(words)}"
