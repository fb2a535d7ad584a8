"""One turn a line: JSON lines with a session, the user's text, and when it is sent.

Keys: `session` or `session_id`; `user`, `text` or `prompt`; and either `delay_ms` (or `delay`), counted from the end
of the reply before, or `timestamp_ms` (or `timestamp`), counted from the start. All turns of a file are timed alike:
perf_analyzer and aiperf once dropped turns that were not (triton-inference-server/perf_analyzer#301). A delay of a
session's first turn is taken as the session's start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import AliasChoices, Field

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, SessionBook
from scenarios.readers.row import Duration, Row, Tokens, TurnTimes, parse, present
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import Record, lines
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Message, TraceInfo, TraceRequest

MS = 1000.0
SESSIONS = ("session", "session_id")
TEXTS = ("user", "text", "prompt")
DELAYS = ("delay_ms", "delay")
TIMESTAMPS = ("timestamp_ms", "timestamp")
TIMES = (*DELAYS, *TIMESTAMPS)


class _Line(Row):
    session: str | int = Field(validation_alias=AliasChoices(*SESSIONS))
    text: str = Field(validation_alias=AliasChoices(*TEXTS))
    delay_ms: Duration | None = None
    delay: Duration | None = None
    timestamp_ms: Duration | None = None
    timestamp: Duration | None = None
    output_length: Tokens | None = None


def _matches(sample: Sample) -> bool:
    texts: list[Any] = [sample.first(key) for key in TEXTS]
    return (
        sample.layout is Layout.LINES
        and any(map(sample.has, SESSIONS))
        and any(isinstance(text, str) for text in texts)
        and not sample.has("messages")
    )


def _info(sample: Sample, _: int | None) -> TraceInfo:
    clock = Clock.TRACE if any(map(sample.has, TIMESTAMPS)) else Clock.NONE
    return TraceInfo(FORMAT.name, clock, sessions_recorded=True)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    book = SessionBook(reading.report)
    times = TurnTimes(DELAYS)

    def read(record: Record) -> list[TraceRequest]:
        line, place = parse(_Line, record), record.place
        has = present(line, TIMES)
        state = book.of(str(line.session))
        times.check(place, has, opens=state.turns == 0)
        delay_ms = line.delay_ms if line.delay is None else line.delay
        time_ms = line.timestamp_ms if line.timestamp is None else line.timestamp
        at_s = None if time_ms is None else reading.arrival_s(place, next(iter(has)), time_ms / MS)
        if state.turns == 0 and delay_ms:
            reading.report.note(Remark.START_OFFSET, place.short)
        request = TraceRequest(
            session_id=str(line.session),
            turn=book.add_turn(state, place, None, line.output_length),
            input_tokens=None,
            output_tokens=line.output_length,
            at_s=at_s,
            think_s=None if delay_ms is None else delay_ms / MS,
            messages=(Message("user", line.text),),
            line=place.number,
        )
        return [request]

    return reading.each(lines(reading.path), read)


FORMAT = Format(
    name="turn-lines",
    looks_like="JSON lines with `session`, `user` (the text) and `delay_ms` or `timestamp_ms`",
    keys=frozenset({*SESSIONS, *TEXTS, *TIMES}),
    matches=_matches,
    info=_info,
    read=_read,
)
