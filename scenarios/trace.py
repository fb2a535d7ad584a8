"""What recorded traffic looks like inside the project, whatever file it came from.

Readers (`scenarios.readers`) yield these records, analysis counts on them, and conversion makes sessions of them.
Times are seconds, lengths are tokens. None means that the source does not say.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scenarios.errors import ScenarioError
from scenarios.reading_report import ReadingReport


class TraceError(ScenarioError):
    """Raised when a trace cannot be read; names the file, the line or record, the field, and what to do."""


class Scope(enum.StrEnum):
    """What two equal block ids mean."""

    GLOBAL = "global"
    """Equal ids are equal tokens, in whichever session they stand."""
    LOCAL = "local"
    """Ids are numbered in each session anew: equal ids of two sessions say nothing."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat log."""

    role: str
    """system, user, assistant or tool."""
    text: str


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace, in the order of the file.

    `at_s` is its recorded time (from the start of the trace, or of its session where the trace has only such clocks,
    see `TraceInfo.clock`); `think_s` is the pause after the previous reply of its session.
    """

    session_id: str
    turn: int
    """0 for the first request of a session."""
    input_tokens: int | None
    """Whole prompt, history included; None for chat logs, whose text is not counted yet."""
    output_tokens: int | None
    at_s: float | None = None
    think_s: float | None = None
    after: int | None = None
    """The turn whose history this one continues; None means the turn before it (see `scenarios.plan.Turn.after`)."""
    block_ids: tuple[int, ...] = ()
    """Blocks of the prompt, first to last; the last one may be partly filled."""
    messages: tuple[Message, ...] = ()
    """What this turn adds to the conversation: all messages since the previous reply."""
    reply: Message | None = None
    line: int = 0
    """Line (or record) of the source, for messages."""


class Clock(enum.StrEnum):
    """Which clock `at_s` counts on."""

    TRACE = "trace"
    """One clock for all sessions: arrivals are recorded."""
    SESSION = "session"
    """Every session has a clock of its own: when sessions began is not recorded."""
    NONE = "none"
    """No times at all."""


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """What holds for a whole trace."""

    format: str
    """Name of the reader, such as `mooncake`."""
    clock: Clock
    sessions_recorded: bool
    """False: the source has no session field, each request stands alone until `infer_sessions` finds its parent."""
    block_tokens: int | None = None
    """Tokens of a block; None when the trace has no block ids."""
    scope: Scope | None = None
    at_step_s: float | None = None
    """Arrivals are rounded to this step by the source (Mooncake conversation: 3 s)."""
    sessions_inferred: bool = False
    """True: sessions were found by `infer_sessions`, not recorded by the source."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace that can be read any number of times, each time as a stream."""

    info: TraceInfo
    requests: Callable[[], Iterator[TraceRequest]]
    report: ReadingReport = field(default_factory=ReadingReport, compare=False)
    """What the latest reading skipped, changed or found odd; whole when that reading has ended."""


@dataclass(frozen=True, slots=True)
class TraceSession:
    """One conversation of a trace, whole."""

    session_id: str
    start_s: float | None
    """Its arrival, from the start of the trace; None when the source does not say."""
    turns: tuple[TraceRequest, ...]
    """Its requests by turn; their `at_s` counts on the trace's clock, as everywhere (`TraceInfo.clock`)."""
