"""kv-cache-tester (Weka, Claude Code) traces: one session a JSON file, or a line; folders of files; blocks of 64.

Read: ai-dynamo/aiperf src/aiperf/dataset/loader/weka_trace_models.py, and the sample. `t` is seconds since the
session's start, `think_time` the pause before a request, `api_time` the server's time. Block ids are local to a
session and cover only whole blocks in most requests. A sub-agent's requests are a branch of the session that started
it, in order of time; its `t` counts from its own start, or from the session's when it begins at or after that. The
session waits for its sub-agents: their duration is taken out of the think time of the next request.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, SessionBook
from scenarios.readers.row import Duration, PromptTokens, Row, Tokens, parse
from scenarios.readers.sample import Layout, Sample, files_of
from scenarios.readers.source import BadRecord, Place, Record, array_items, lines, object_items
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Scope, TraceInfo, TraceRequest

KEY = "requests"
BLOCK_TOKENS = 64
SIGNATURE_REQUESTS = 10
"""Sessions that are equal in so many first requests are taken for the same recording."""


class _Call(Row):
    t: Duration
    type: Literal["n", "s"]
    input_tokens: PromptTokens = Field(alias="in")
    output_tokens: Tokens = Field(alias="out")
    hash_ids: list[int] = Field(default_factory=list)
    api_time: Duration | None = None
    think_time: Duration | None = None


class _SubAgent(Row):
    t: Duration
    type: Literal["subagent"]
    duration_ms: Duration | None = None
    requests: list[_Call]


_Entry = Annotated[_Call | _SubAgent, Field(discriminator="type")]


class _Request(Row):
    """One entry of `requests`."""

    entry: _Entry


class _Head(Row):
    """What a session says of all its requests."""

    id: str
    block_size: int = Field(BLOCK_TOKENS, ge=1)
    hash_id_scope: Literal["local"] = "local"


class _Session(_Head):
    requests: list[_Entry]


def _matches(sample: Sample) -> bool:
    requests = sample.first(KEY)
    calls = isinstance(requests, list) and bool(requests) and isinstance(requests[0], dict)
    return sample.layout is not Layout.CSV and calls and {"in", "out", "t"} <= requests[0].keys()


def _info(sample: Sample, block_tokens: int | None) -> TraceInfo:
    size = block_tokens or sample.first("block_size") or BLOCK_TOKENS
    return TraceInfo(FORMAT.name, Clock.SESSION, sessions_recorded=True, block_tokens=size, scope=Scope.LOCAL)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    sessions = _Sessions(reading)
    if reading.sample.layout is not Layout.FOLDER:
        yield from sessions.file(reading.path, reading.sample.layout)
        return
    for file in files_of(reading.path):
        inner = Layout.LINES if ".jsonl" in file.suffixes else Layout.OBJECT
        yield from sessions.file(file, inner)


class _Sessions:
    """The sessions of one trace: their names and their beginnings, by which copies are found."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.book = SessionBook(reading.report)
        self.block_tokens = _info(reading.sample, reading.options.block_tokens).block_tokens or BLOCK_TOKENS
        self._names: set[str] = set()
        self._beginnings: set[bytes] = set()

    def file(self, path: Path, layout: Layout) -> Iterator[TraceRequest]:
        """Yield the requests of one file: of a document one at a time, of lines one session at a time."""
        if layout is Layout.OBJECT:
            yield from self._document(path)
        else:
            records = array_items if layout is Layout.ARRAY else lines
            yield from self.reading.each(records(path), self._whole)

    def _whole(self, record: Record) -> list[TraceRequest]:
        session = parse(_Session, record)
        run = self.begin(session, record.place)
        found = [request for entry in session.requests for request in run.add(entry, record.place)]
        return [*found, *run.end(record.place)]

    def _document(self, path: Path) -> Iterator[TraceRequest]:
        runs: list[_Run] = []
        head: dict[str, Any] | None = None

        def read(record: Record) -> list[TraceRequest]:
            nonlocal head
            ended: list[TraceRequest] = []
            if record.head is not head:
                run = self.begin(parse(_Head, Record(record.place, record.head, {})), record.place)
                ended = runs.pop().end(record.place) if runs else []
                runs.append(run)
                head = record.head
            entry = parse(_Request, Record(record.place, {"entry": record.data}, {})).entry
            return [*ended, *runs[-1].add(entry, record.place)]

        yield from self.reading.each(object_items(path, KEY), read)
        if runs:
            yield from runs.pop().end(Place(path, 0, "record"))

    def begin(self, head: _Head, place: Place) -> _Run:
        """Begin a session; one whose name is taken gets another."""
        if head.block_size != self.block_tokens and self.reading.options.block_tokens is None:
            raise BadRecord(
                f"{place}: `block_size` is {head.block_size}, that of the first session {self.block_tokens}; "
                "convert them apart"
            )
        name, copy = head.id, 1
        while name in self._names:
            copy += 1
            name = f"{head.id}#{copy}"
        self._names.add(name)
        return _Run(self, name)

    def is_copy(self, beginning: bytes) -> bool:
        """Tell whether another session began like this; remember it."""
        known = beginning in self._beginnings
        self._beginnings.add(beginning)
        return known


@dataclass(frozen=True, slots=True, order=True)
class _Waiting:
    """A sub-agent's request whose time has not come."""

    at_s: float
    order: int
    agent: int
    call: _Call | None = None


class _Run:
    """One session while it is read. Its first requests are held until it is known not to be a copy."""

    def __init__(self, sessions: _Sessions, name: str) -> None:
        self._sessions = sessions
        self._reading = sessions.reading
        self._name = name
        self._state = sessions.book.of(name)
        self._turn_of_agent: dict[int, int] = {}
        self._waiting: list[_Waiting] = []
        self._agents = 0
        self._waited_s = 0.0
        self._latest_s = 0.0
        self._held: list[TraceRequest] | None = []
        self._dropped = False

    def add(self, entry: _Call | _SubAgent, place: Place) -> list[TraceRequest]:
        """Take one entry; return the requests that are due before it, and it, unless they are held."""
        if isinstance(entry, _SubAgent):
            self._start_agent(entry, place)
            return []
        if entry.t < self._latest_s:
            raise BadRecord(f"{place}: `t` is {entry.t:g} s, before the {self._latest_s:g} s of the request before it")
        self._check(entry, place)
        due = self._due(entry.t, place)
        self._latest_s = entry.t
        think_s = entry.think_time
        if think_s is not None and self._waited_s:
            think_s = max(0.0, think_s - self._waited_s)
        self._waited_s = 0.0
        return self._release([*due, self._request(entry, 0, entry.t, think_s, place)], place)

    def end(self, place: Place) -> list[TraceRequest]:
        """Return what is still held or waiting."""
        found = self._release(self._due(float("inf"), place), place)
        return [*found, *self._decide(place)]

    def _start_agent(self, agent: _SubAgent, place: Place) -> None:
        for call in agent.requests:
            self._check(call, place)
        self._agents += 1
        self._reading.report.note(Remark.SUBAGENT, place.short)
        own_clock = bool(agent.requests) and agent.requests[0].t < agent.t
        for order, call in enumerate(agent.requests):
            at_s = call.t + (agent.t if own_clock else 0.0)
            heapq.heappush(self._waiting, _Waiting(at_s, order, self._agents, call))
        self._waited_s += (agent.duration_ms or 0.0) / 1000

    def _due(self, until_s: float, place: Place) -> list[TraceRequest]:
        """Return the requests of sub-agents up to a time."""
        due = []
        while self._waiting and self._waiting[0].at_s <= until_s:
            waiting = heapq.heappop(self._waiting)
            if waiting.call is not None:
                think_s = waiting.call.think_time
                due.append(self._request(waiting.call, waiting.agent, waiting.at_s, think_s, place))
        return due

    def _check(self, call: _Call, place: Place) -> None:
        self._reading.check_context(place, call.input_tokens, call.output_tokens)
        if call.hash_ids:
            blocks = len(call.hash_ids)
            self._reading.check_blocks(place, call.input_tokens, blocks, self._sessions.block_tokens, floor=True)

    def _request(self, call: _Call, agent: int, at_s: float, think_s: float | None, place: Place) -> TraceRequest:
        before = self._turn_of_agent.get(agent, -1)
        if agent:  # its prompt has nothing to do with that of the turn before
            turn, self._state.turns = self._state.turns, self._state.turns + 1
        else:
            turn = self._sessions.book.add_turn(self._state, place, call.input_tokens, call.output_tokens)
        self._turn_of_agent[agent] = turn
        return TraceRequest(
            session_id=self._name,
            turn=turn,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            at_s=at_s,
            think_s=think_s,
            after=None if before == turn - 1 else before,
            block_ids=tuple(call.hash_ids),
            line=place.number,
        )

    def _release(self, requests: list[TraceRequest], place: Place) -> list[TraceRequest]:
        if self._held is None:
            return [] if self._dropped else requests
        self._held += requests
        return self._decide(place) if len(self._held) >= SIGNATURE_REQUESTS else []

    def _decide(self, place: Place) -> list[TraceRequest]:
        """Let go of the first requests, or drop the session when it is a copy and copies are not wanted."""
        if self._held is None:
            return []
        held, self._held = self._held, None
        text = ";".join(f"{r.at_s},{r.input_tokens},{r.output_tokens}" for r in held[:SIGNATURE_REQUESTS])
        if held and self._sessions.is_copy(blake2b(text.encode(), digest_size=16).digest()):
            self._dropped = self._reading.options.drop_duplicates
            self._reading.report.note(Remark.DUPLICATE_DROPPED if self._dropped else Remark.DUPLICATE, place.short)
        return [] if self._dropped else held


FORMAT = Format(
    name="kv-cache-tester",
    looks_like="JSON with `requests` of `t`, `in`, `out` and `hash_ids`, one session a file or a line",
    keys=frozenset({"id", "models", "block_size", "hash_id_scope", "tool_tokens", "system_tokens", KEY}),
    matches=_matches,
    info=_info,
    read=_read,
)
