"""What is analysed: the stream of requests, and what may be concluded from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scenarios.analysis.stream import AccessStream


@dataclass(frozen=True)
class Load:
    """A stream with what its source knows. What a source does not say is never shown as zero."""

    source: str
    stream: AccessStream
    sessions_known: bool
    """False: every request stands alone in the source."""
    others_known: bool
    """False: block ids are numbered in each session anew, so that sharing across sessions does not show."""
    times: Literal["recorded", "simulated"]
    unknown: str = ""
    """Why nothing is known of sharing; empty when the stream has blocks."""
    notes: tuple[str, ...] = ()
    """What was assumed, a sentence each."""
