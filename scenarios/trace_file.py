"""Trace files: a trace of any format as this project keeps it, JSON lines, gzip when the name ends in .gz.

The first line says what holds for the whole trace and what reading its source did to it. Every further line is one
whole session; sessions are in order of their arrival, where arrivals are recorded.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from scenarios.packed import opened, replaced
from scenarios.reading_report import ReadingReport, Tally
from scenarios.strict import StrictModel
from scenarios.trace import Clock, Message, Scope, Trace, TraceError, TraceInfo, TraceRequest, TraceSession
from scenarios.trace_sessions import trace_sessions

KIND = "hicache-tune-trace"


class _Part(StrictModel):
    model_config = ConfigDict(allow_inf_nan=False)


class _Info(_Part):
    format: str
    clock: Clock
    sessions_recorded: bool
    block_tokens: int | None = None
    scope: Scope | None = None
    at_step_s: float | None = None
    sessions_inferred: bool = False


class _Tally(_Part):
    remark: str
    count: int
    first: str = ""


class _Source(_Part):
    """What reading the source did."""

    skipped: list[str] = Field(default_factory=list)
    remarks: list[_Tally] = Field(default_factory=list)


class _Head(_Part):
    """The first line."""

    schema_version: Literal[1]
    kind: Literal["hicache-tune-trace"]
    info: _Info
    sessions: int = Field(ge=0)
    requests: int = Field(ge=0)
    source: _Source


class _Message(_Part):
    role: str
    text: str


class _Turn(_Part):
    """One request; its number is its place in the session's `turns`."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    at_s: float | None = None
    think_s: float | None = None
    after: int | None = None
    block_ids: list[int] = Field(default_factory=list)
    messages: list[_Message] = Field(default_factory=list)
    reply: _Message | None = None
    line: int = 0


class _Session(_Part):
    """One line."""

    session_id: str
    start_s: float | None = None
    turns: list[_Turn] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class TraceTotals:
    """What a trace file holds."""

    sessions: int
    requests: int
    input_tokens: int | None
    """None when a request's length is unknown."""
    output_tokens: int | None


def write_trace_file(trace: Trace, path: Path) -> TraceTotals:
    """Write `trace` to `path`; raise TraceError. What is written again reads the same."""
    return write_sessions(trace.info, trace_sessions(trace), trace.report, path)


def write_sessions(info: TraceInfo, sessions: Iterable[TraceSession], report: ReadingReport, path: Path) -> TraceTotals:
    """Write whole sessions in order of arrival; raise TraceError when there are none.

    They may come in any order and number: they are kept in a file, and only their places in memory.
    """
    try:
        with tempfile.TemporaryFile(dir=path.parent) as body:
            places, totals = _keep(sessions, body)
            if not totals.sessions:
                raise TraceError(f"{path} was not written: no session is left; read the source with other options")
            head = _Head(
                schema_version=1,
                kind=KIND,
                info=_Info(**asdict(info)),
                sessions=totals.sessions,
                requests=totals.requests,
                source=_Source(
                    skipped=report.skipped,
                    remarks=[_Tally(remark=t.remark, count=t.count, first=t.first) for t in report.remarks],
                ),
            )
            with replaced(path) as file:
                file.write(_line(head.model_dump(mode="json", exclude_none=True)))
                for start, length in places.in_order():
                    body.seek(start)
                    file.write(body.read(length))
    except OSError as problem:
        raise TraceError(f"cannot write the trace {path}: {problem.strerror}; check the folder and its space") from None
    return totals


def read_trace_file(path: Path) -> Trace:
    """Open a trace file; raise TraceError when it is none.

    Requests come in order of arrival where arrivals are recorded, else session by session.
    """
    info = read_info(path)
    report = ReadingReport()

    def requests() -> Iterator[TraceRequest]:
        report.begin()
        report.earlier = read_remarks(path)
        for request in requests_of(path):
            report.requests += 1
            yield request

    return Trace(info, requests, report)


def is_trace_file(path: Path) -> bool:
    """Tell whether `path` is a trace file, by its first line."""
    try:
        _head(path)
    except TraceError:
        return False
    return True


def read_info(path: Path) -> TraceInfo:
    """Read what holds for a whole trace file."""
    return TraceInfo(**_head(path).info.model_dump())


def read_remarks(path: Path) -> list[Tally]:
    """Read what was remarked when the file was made."""
    return [Tally(tally.remark, tally.count, tally.first) for tally in _head(path).source.remarks]


def read_sessions(path: Path) -> Iterator[TraceSession]:
    """Yield the sessions of a trace file, in order of arrival; raise TraceError with the line at fault."""
    expected = _head(path).sessions
    count = 0
    with opened(path) as file:
        for number, line in islice(enumerate(file, start=1), 1, None):
            count += 1
            yield _parse_session(line, path, number)
    if count != expected:
        raise TraceError(f"{path}: {count} of {expected} sessions are left; convert its source again")


def requests_of(path: Path) -> Iterator[TraceRequest]:
    """Yield the requests of a trace file: merged by arrival, or session by session."""
    sessions = read_sessions(path)
    if read_info(path).clock is not Clock.TRACE:
        for session in sessions:
            yield from session.turns
        return
    waiting: list[_Due] = []
    for session in sessions:
        dues = iter(_dues(session))
        first = next(dues)
        while waiting and waiting[0].key <= first.key:
            yield from _next(waiting)
        first.later = dues
        heapq.heappush(waiting, first)
    while waiting:
        yield from _next(waiting)


@dataclass(slots=True)
class _Due:
    """A request that waits for those that arrived before it."""

    key: tuple[float, int]
    request: TraceRequest
    later: Iterator[_Due] | None = None

    def __lt__(self, other: _Due) -> bool:
        return self.key < other.key


def _dues(session: TraceSession) -> Iterator[_Due]:
    """Yield the turns by arrival; one without a time comes right after the turn before it."""
    at_s = session.start_s if session.start_s is not None else 0.0
    for request in session.turns:
        at_s = at_s if request.at_s is None else max(at_s, request.at_s)
        yield _Due((at_s, request.line), request)


def _next(waiting: list[_Due]) -> Iterator[TraceRequest]:
    due = heapq.heappop(waiting)
    yield due.request
    following = next(due.later, None) if due.later is not None else None
    if following is not None:
        following.later = due.later
        heapq.heappush(waiting, following)


class _Places:
    """Where sessions lie in a file, in 32 bytes a session."""

    def __init__(self) -> None:
        self._arrivals_s = array("d")
        self._lines = array("q")
        self._ends = array("q", [0])

    def add(self, session: TraceSession, length: int) -> None:
        """Add a session that was written next."""
        self._arrivals_s.append(session.start_s or 0.0)
        self._lines.append(session.turns[0].line)
        self._ends.append(self._ends[-1] + length)

    def __len__(self) -> int:
        """Count the sessions."""
        return len(self._lines)

    def in_order(self) -> Iterator[tuple[int, int]]:
        """Yield where each session begins and how long it is, by arrival; those of one time in order of the source."""
        for index in np.lexsort((self._lines, self._arrivals_s)):
            yield self._ends[index], self._ends[index + 1] - self._ends[index]


def _keep(sessions: Iterable[TraceSession], body: IO[bytes]) -> tuple[_Places, TraceTotals]:
    """Write sessions as they come; return where each one is, and the totals."""
    places = _Places()
    requests = inputs = outputs = 0
    lengths_known, outputs_known = True, True
    for session in sessions:
        line = _line(_session_data(session))
        body.write(line)
        places.add(session, len(line))
        requests += len(session.turns)
        for turn in session.turns:
            lengths_known = lengths_known and turn.input_tokens is not None
            outputs_known = outputs_known and turn.output_tokens is not None
            inputs += turn.input_tokens or 0
            outputs += turn.output_tokens or 0
    return places, TraceTotals(
        len(places), requests, inputs if lengths_known else None, outputs if outputs_known else None
    )


def _session_data(session: TraceSession) -> dict[str, Any]:
    """Return a line's content, without what is not known."""
    start = {} if session.start_s is None else {"start_s": session.start_s}
    return {"session_id": session.session_id, **start, "turns": [_turn_data(turn) for turn in session.turns]}


def _turn_data(turn: TraceRequest) -> dict[str, Any]:
    data = {
        "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens,
        "at_s": turn.at_s,
        "think_s": turn.think_s,
        "after": turn.after,
        "block_ids": turn.block_ids or None,
        "messages": [asdict(message) for message in turn.messages] or None,
        "reply": None if turn.reply is None else asdict(turn.reply),
        "line": turn.line,
    }
    return {key: value for key, value in data.items() if value is not None}


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _head(path: Path) -> _Head:
    with opened(path) as file:
        line = file.readline()
    return _Head.parse(_json(line, path, 1), where=f"{path}, line 1", error=TraceError)


def _parse_session(line: bytes, path: Path, number: int) -> TraceSession:
    session = _Session.parse(_json(line, path, number), where=f"{path}, line {number}", error=TraceError)
    turns = tuple(_request(session.session_id, turn, data) for turn, data in enumerate(session.turns))
    return TraceSession(session.session_id, session.start_s, turns)


def _request(session_id: str, turn: int, data: _Turn) -> TraceRequest:
    return TraceRequest(
        session_id=session_id,
        turn=turn,
        input_tokens=data.input_tokens,
        output_tokens=data.output_tokens,
        at_s=data.at_s,
        think_s=data.think_s,
        after=data.after,
        block_ids=tuple(data.block_ids),
        messages=tuple(Message(message.role, message.text) for message in data.messages),
        reply=None if data.reply is None else Message(data.reply.role, data.reply.text),
        line=data.line,
    )


def _json(line: bytes, path: Path, number: int) -> object:
    try:
        return json.loads(line)
    except ValueError:
        raise TraceError(f"{path}, line {number}: no line of a trace file; convert its source again") from None
