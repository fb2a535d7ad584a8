"""Names of flags in older writings, and what they are called today.

`--hicache-host-memory-gb` was never a flag of a release known here, though a widely copied article has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import ConfigError

OLD_NAMES = {
    "enable-hicache": "enable-hierarchical-cache",
    "hicache-host-memory-gb": "hicache-size",
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "tp": "tp-size",
    "dp": "dp-size",
}
"""0.5.15 still takes the two of the graphs and 0.5.23 takes the first; a name that the engine has stays as it is."""
NOTES = {"hicache-host-memory-gb": "; it is a whole number of GB (1e9 bytes) for each rank"}
RANK_FLAGS = ("--tp-size", "--dp-size")


def today(name: str) -> str:
    """Return what a flag is called today, or the name itself."""
    return OLD_NAMES.get(name, name)


def warning(old: str, new: str) -> str:
    """Say that a flag was taken under its name of today."""
    return f"--{old} is an older name; taken as --{new}{NOTES.get(old, '')}"


@dataclass(frozen=True)
class Translated:
    """The words of a command line in this tool's own flags, and what the user should know of it."""

    words: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def translate_command(words: Sequence[str]) -> Translated:
    """Write a launch's flags for HiCache, as articles have them, in the flags of `hicache-tune search`.

    `--enable-hicache` and `--enable-hierarchical-cache` become `--hicache on`, and `--hicache-host-memory-gb N` becomes
    `--hicache-size N`. Raises ConfigError where N, a total, would have to be divided over several ranks.
    """
    written, warnings = list[str](), list[str]()
    for word in words:
        flag, separator, value = word.partition("=")
        if word in ("--enable-hicache", "--enable-hierarchical-cache"):
            written += ["--hicache", "on"]
            warnings.append(f"{word} is the engine's flag; taken as `--hicache on`")
        elif flag == "--hicache-host-memory-gb":
            _refuse_total_over_ranks(words)
            written.append(f"--hicache-size{separator}{value}")
            warnings.append(warning("hicache-host-memory-gb", "hicache-size"))
        else:
            written.append(word)
    return Translated(tuple(written), tuple(warnings))


def _refuse_total_over_ranks(words: Sequence[str]) -> None:
    for flag in RANK_FLAGS:
        ranks = _value_of(flag, words)
        if ranks not in ("", "1"):
            raise ConfigError(
                f"--hicache-host-memory-gb is a total, and {flag} {ranks} makes a host pool on each rank; "
                "divide it by the ranks and give --hicache-size"
            )


def _value_of(flag: str, words: Sequence[str]) -> str:
    for number, word in enumerate(words):
        if word == flag:
            return words[number + 1] if number + 1 < len(words) else ""
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return ""
