"""What a process that plays tells of itself while it plays, to whoever decides when the load is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from harness.load.job import Stopped


@dataclass(frozen=True, slots=True)
class Answered:
    """One counted request whose first token has come."""

    turn: int
    scheduled_ns: int
    ttft_ns: int
    session_id: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """One counted request without a first token so far."""

    turn: int
    scheduled_ns: int


@dataclass(frozen=True, slots=True)
class Report:
    """One process at one moment. `answered` is what is new since its report before, the rest since the start."""

    done: int = 0
    """Turns of counted sessions that have ended in any way."""
    failed: int = 0
    in_flight: int = 0
    sessions_left: int = 0
    counted_left: int = 0
    stopped: Stopped | None = None
    answered: Sequence[Answered] = ()
    waiting: Sequence[Waiting] = ()
    heard_ns: int = 0
    """When a token came last to any request, or, if later, when requests began to be in flight again; 0 before."""

    def packed(self) -> dict[str, Any]:
        """Return it in plain values, as a message carries it."""
        return {**asdict(self), "stopped": self.stopped and self.stopped.value}

    @classmethod
    def unpacked(cls, message: Mapping[str, Any]) -> Self:
        """Read what `packed` has made."""
        return cls(
            **{
                **message,
                "stopped": message["stopped"] and Stopped(message["stopped"]),
                "answered": [Answered(**values) for values in message["answered"]],
                "waiting": [Waiting(**values) for values in message["waiting"]],
            }
        )
