"""Finds turns of one session that ran at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Span:
    """When one turn was sent and ended."""

    session: str
    turn: int
    sent: int
    ended: int


def overlapping(spans: Iterable[Span]) -> list[Span]:
    """Return the turns that were sent before the previous turn of their session had ended."""
    sessions: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans):
        sessions[span.session].append(span)
    return [
        later
        for turns in sessions.values()
        for number, later in enumerate(turns)
        if any(later.sent < earlier.ended for earlier in turns[:number])
    ]
