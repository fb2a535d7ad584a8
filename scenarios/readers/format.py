"""What a reader is: how its format looks, and how to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scenarios.readers.reading import Reading
from scenarios.readers.sample import Sample
from scenarios.trace import TraceInfo, TraceRequest


@dataclass(frozen=True, slots=True)
class Format:
    """One format of traces."""

    name: str
    looks_like: str
    """For people: what a file of this format is, in a few words."""
    keys: frozenset[str]
    """Fields or columns by which the nearest format is found when none matches."""
    matches: Callable[[Sample], bool]
    """Tells by content whether a file is of this format; at most one format says so of a file."""
    info: Callable[[Sample, int | None], TraceInfo]
    """Says what holds for the whole trace, with the user's tokens of a block when they gave them; may refuse it."""
    read: Callable[[Reading], Iterator[TraceRequest]]
