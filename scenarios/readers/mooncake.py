"""Mooncake traces: JSON lines with `timestamp` (ms), `input_length`, `output_length` and `hash_ids`.

aiperf's additions are read too (read: ai-dynamo/aiperf src/aiperf/dataset/loader/models.py, class MooncakeTrace, and
mooncake_trace.py): exactly one of `input_length`, `text_input` and `messages`; `session_id` joins lines to a session;
`delay` (ms) counts from the end of the reply before; `message_mode: delta` says that `messages` are new ones only.
Without `hash_ids`, the lengths of a session are taken as aiperf replays them, as what each turn adds, unless
`context_mode` is `message_array_with_responses`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import gcd
from typing import Any, Literal

from pydantic import Field

from scenarios.readers.chat import ChatMessage, GrowingLog, read_message, tools_message
from scenarios.readers.format import Format
from scenarios.readers.reading import FIRST_BLOCK_SIZE, Reading, SessionBook, SessionState
from scenarios.readers.row import Duration, PromptTokens, Row, Tokens, parse, present, same_fields
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import BadRecord, Place, Record, lines
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Message, Scope, TraceInfo, TraceRequest

MS = 1000.0
BLOCK_SIZES = (FIRST_BLOCK_SIZE, 16, 32, 64, 128, 256, 1024)
INPUTS = ("input_length", "text_input", "messages")
TIMES = ("timestamp", "delay")
WHOLE_CONTEXT = "message_array_with_responses"
LEAST_STEPS = 3
JITTER_MS = 2
"""The conversation trace has ticks at 2999, 6000, 9001 ms ..."""


class _Line(Row):
    timestamp: Duration | None = None
    delay: Duration | None = None
    input_length: PromptTokens | None = None
    text_input: str | None = None
    messages: list[ChatMessage] | None = Field(None, min_length=1)
    tools: list[Any] | None = None
    message_mode: Literal["history", "delta"] = "history"
    context_mode: str | None = None
    output_length: Tokens | None = None
    hash_ids: list[int] | None = None
    session_id: str | int | None = None


def _matches(sample: Sample) -> bool:
    if sample.layout is not Layout.LINES or sample.has("chat_id"):
        return False
    with_messages = sample.has("messages") and any(map(sample.has, ("output_length", "message_mode", "delay")))
    return sample.has("input_length") or sample.has("text_input") or with_messages


def _info(sample: Sample, block_tokens: int | None) -> TraceInfo:
    blocks = any(record.get("hash_ids") for record in sample.records)
    return TraceInfo(
        FORMAT.name,
        Clock.TRACE if sample.has("timestamp") else Clock.NONE,
        sessions_recorded=any("session_id" in r or "messages" in r for r in sample.records),
        block_tokens=(block_tokens or _block_size(sample)) if blocks else None,
        scope=Scope.GLOBAL if blocks else None,
        at_step_s=_step_s(sample),
    )


def _read(reading: Reading) -> Iterator[TraceRequest]:
    return reading.each(lines(reading.path), _Reader(reading).read)


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.book = SessionBook(reading.report)
        self.log = GrowingLog(reading.report)
        self.block_tokens = reading.options.block_tokens or _block_size(reading.sample)
        self.timed: dict[bool, tuple[Place, frozenset[str]]] = {}

    def read(self, record: Record) -> list[TraceRequest]:
        line, place = parse(_Line, record), record.place
        kind = present(line, INPUTS)
        if len(kind) != 1:
            has = " and ".join(f"`{name}`" for name in sorted(kind)) or "none"
            names = ", ".join(f"`{name}`" for name in INPUTS)
            raise BadRecord(f"{place}: has {has} of {names}; a line has exactly one")
        session_id = f"{place.unit}-{place.number}" if line.session_id is None else str(line.session_id)
        state = SessionState() if line.session_id is None else self.book.of(session_id)
        messages = self._messages(line, place, first=state.turns == 0)
        self._check_times(line, place, later=state.turns > 0)
        whole, input_tokens = self._input(line, place, state)
        self.reading.check_context(place, input_tokens, line.output_length)
        at_s = None
        if line.timestamp is not None:
            at_s = self.reading.arrival_s(place, "timestamp", line.timestamp / MS)
        if state.turns == 0 and line.delay:
            self.reading.report.note(Remark.START_OFFSET, place.short)
        request = TraceRequest(
            session_id=session_id,
            turn=self.book.add_turn(state, place, input_tokens if whole else None, line.output_length),
            input_tokens=input_tokens,
            output_tokens=line.output_length,
            at_s=at_s,
            think_s=None if line.delay is None else line.delay / MS,
            block_ids=tuple(line.hash_ids or ()),
            line=place.number,
        )
        state.context_tokens = (input_tokens or 0) + (line.output_length or 0)
        return self._with_text(request, messages, line, place)

    def _check_times(self, line: _Line, place: Place, *, later: bool) -> None:
        """First turns are timed alike, and so are later ones; a session may begin by the clock and go on by delays."""
        has = present(line, TIMES if later else ("timestamp",))
        first = self.timed.setdefault(later, (place, has))
        same_fields(place, first[0], has, first[1])

    def _input(self, line: _Line, place: Place, state: SessionState) -> tuple[bool, int | None]:
        """Return whether the recorded length is that of the whole prompt, and the whole prompt's length."""
        if line.input_length is None:
            if line.hash_ids:
                raise BadRecord(f"{place}: `hash_ids` without `input_length`")
            return False, None
        if line.hash_ids:
            self.reading.check_blocks(place, line.input_length, len(line.hash_ids), self.block_tokens, floor=False)
        if line.hash_ids is not None or line.session_id is None or line.context_mode == WHOLE_CONTEXT:
            return True, line.input_length
        return False, state.context_tokens + line.input_length

    def _messages(self, line: _Line, place: Place, *, first: bool) -> list[Message]:
        report = self.reading.report
        if line.text_input is not None:
            return [Message("user", line.text_input)]
        messages = [read_message(place, message, report) for message in line.messages or ()]
        if line.tools and messages and (first or line.message_mode == "history"):
            messages.insert(0, tools_message(line.tools, place, report))
        return messages

    def _with_text(
        self, request: TraceRequest, messages: list[Message], line: _Line, place: Place
    ) -> list[TraceRequest]:
        """Add what is said; whole histories are joined with the lines whose messages they begin with."""
        if line.messages is None or line.message_mode == "delta":
            return [replace(request, messages=tuple(messages))]
        turns = self.log.add(None if line.session_id is None else request.session_id, messages, None, place)
        if len(turns) == 1:
            turns[0] = replace(turns[0], output_tokens=request.output_tokens)
        if turns:
            turns[0] = replace(turns[0], at_s=request.at_s, think_s=request.think_s)
        return turns


def _block_size(sample: Sample) -> int:
    """Return the block size that explains the sample, Mooncake's own first."""
    pairs = [
        (record["input_length"], len(record["hash_ids"]))
        for record in sample.records
        if isinstance(record.get("hash_ids"), list) and isinstance(record.get("input_length"), int)
    ]
    fitting = (size for size in BLOCK_SIZES if all(-(-length // size) == blocks for length, blocks in pairs))
    return next(fitting, FIRST_BLOCK_SIZE)


def _step_s(sample: Sample) -> float | None:
    """Return the whole seconds to which all arrivals of the sample are rounded, give or take `JITTER_MS`."""
    times = {record["timestamp"] for record in sample.records if isinstance(record.get("timestamp"), int)}
    ticks = sorted({round(time / MS) for time in times})
    steps = [later - earlier for earlier, later in pairwise(ticks)]
    if len(steps) < LEAST_STEPS or any(abs(time - round(time / MS) * MS) > JITTER_MS for time in times):
        return None
    return float(gcd(*steps))


FORMAT = Format(
    name="mooncake",
    looks_like="JSON lines with `input_length` (or `text_input`) and mostly `timestamp` and `hash_ids`",
    keys=frozenset({"timestamp", "input_length", "output_length", "hash_ids", "text_input", "delay", "session_id"}),
    matches=_matches,
    info=_info,
    read=_read,
)
