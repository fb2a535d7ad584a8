"""What a load plays: sessions of turns with their exact words, in the order in which they start.

A plan is made once for each seed and played against every setting, so that settings are compared over equal
sessions. It is written as JSON lines, one session a line, and read by the load process.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from scenarios.errors import ScenarioError

ParsedT = TypeVar("ParsedT")


class Phase(enum.StrEnum):
    """Why a session is played."""

    WARMUP = "warmup"
    """Fills the caches and spreads the slots over a session's length; not compared."""
    COUNTED = "counted"
    """Compared between settings."""
    FILLER = "filler"
    """Keeps the concurrency up until the last counted session has ended; cut there, not compared."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session.

    Exactly one of `text` and `token_ids` is set: chat plans carry text, token plans carry ids. The same holds
    for the scripted reply, which joins the history in place of the model's own; both None means that the
    model's own reply joins.
    """

    think_s: float
    """Seconds between the end of the previous reply and this turn's scheduled time; 0 for turn 0."""
    max_output_tokens: int
    at_s: float | None = None
    """Recorded time: seconds after the session's start at which this turn is due, whatever the reply before it does.
    A turn that is due while the reply runs is sent when it has ended, and is measured from when it was due."""
    after: int | None = None
    """Which turn's history this one continues: None means the turn before it, -1 the session's beginning. A user who
    edits an earlier message, or asks again, makes a branch."""
    cancel_after_tokens: int | None = None
    """The user leaves after so many deltas of the reply; what was read joins the history."""
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    reply_text: str | None = None
    reply_token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. `start_s` is its arrival after the start of the load: of the first session of each slot, while
    slots ramp up, or of every session of an open plan."""

    session_id: str
    phase: Phase
    turns: tuple[Turn, ...]
    start_s: float = 0.0
    system_text: str | None = None
    system_token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Sessions in starting order.

    Closed: `concurrency` slots play them, and a free slot takes the next session. Open (`concurrency` is None): every
    session begins at its `start_s`, however many are running.
    """

    scenario: str
    seed: int
    concurrency: int | None
    sessions: tuple[Session, ...]
    rate_per_s: float | None = None
    """Of an open plan: sessions that arrive in a second, on average."""

    @property
    def slots(self) -> int:
        """Count the users that play: an open plan needs one for each session."""
        return len(self.sessions) if self.concurrency is None else self.concurrency

    @property
    def counted_turns(self) -> int:
        """Count the requests that are compared between settings."""
        return sum(len(s.turns) for s in self.sessions if s.phase is Phase.COUNTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The first line of a plan's file."""

    schema_version: Literal[1]
    scenario: str
    seed: int
    concurrency: int | None = None
    sessions: int
    rate_per_s: float | None = None


_HEAD = TypeAdapter(_Head)
_SESSION = TypeAdapter(Session)


def write_plan(plan: Plan, path: Path) -> None:
    """Write `plan` as JSON lines: a head line, then one line a session. Equal plans give equal bytes."""
    head = _Head(
        schema_version=1,
        scenario=plan.scenario,
        seed=plan.seed,
        concurrency=plan.concurrency,
        sessions=len(plan.sessions),
        rate_per_s=plan.rate_per_s,
    )
    with path.open("wb") as file:
        file.write(_HEAD.dump_json(head, exclude_none=True) + b"\n")
        for session in plan.sessions:
            file.write(_SESSION.dump_json(session, exclude_none=True) + b"\n")


def read_plan(path: Path) -> Plan:
    """Read a plan written by `write_plan`; raise ScenarioError with the line at fault."""
    try:
        first, *rest = path.read_bytes().splitlines() or [b""]
    except OSError as problem:
        raise ScenarioError(f"cannot read the plan {path}: {problem.strerror}; make it again") from None
    head = _parse(_HEAD, first, path, 1)
    sessions = tuple(_parse(_SESSION, line, path, number) for number, line in enumerate(rest, start=2))
    if len(sessions) != head.sessions:
        raise ScenarioError(f"{path}: {len(sessions)} of {head.sessions} sessions are left; make it again")
    return Plan(head.scenario, head.seed, head.concurrency, sessions, head.rate_per_s)


def _parse(adapter: TypeAdapter[ParsedT], line: bytes, path: Path, number: int) -> ParsedT:
    try:
        return adapter.validate_json(line)
    except ValidationError as problem:
        fault = problem.errors(include_url=False)[0]
        key = ".".join(str(part) for part in fault["loc"])
        detail = f"{key}: {fault['msg']}" if key else fault["msg"]
        raise ScenarioError(f"{path}, line {number}: no line of a plan ({detail}); make it again") from None
