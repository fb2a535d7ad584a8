"""Alibaba Bailian (Qwen) traces: JSON lines with `chat_id`, `parent_chat_id` and blocks of 16 tokens; seconds.

Read: ai-dynamo/aiperf src/aiperf/dataset/loader/models.py (class BailianTrace) and bailian_trace.py: every line is a
whole request, history included; `parent_chat_id` -1 begins a conversation; chats with one parent are branches.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, SessionBook
from scenarios.readers.row import Duration, PromptTokens, Row, Tokens, parse
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import BadRecord, Record, lines
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Scope, TraceInfo, TraceRequest

BLOCK_TOKENS = 16
NO_PARENT = -1


class _Line(Row):
    chat_id: int
    parent_chat_id: int
    timestamp: Duration
    input_length: PromptTokens
    output_length: Tokens
    hash_ids: list[int] = Field(default_factory=list)


def _matches(sample: Sample) -> bool:
    return sample.layout is Layout.LINES and sample.has("chat_id", "parent_chat_id")


def _info(_: Sample, block_tokens: int | None) -> TraceInfo:
    size = block_tokens or BLOCK_TOKENS
    return TraceInfo(FORMAT.name, Clock.TRACE, sessions_recorded=True, block_tokens=size, scope=Scope.GLOBAL)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    block_tokens = reading.options.block_tokens or BLOCK_TOKENS
    book = SessionBook(reading.report)
    chats: dict[int, tuple[str, int]] = {}

    def read(record: Record) -> list[TraceRequest]:
        line, place = parse(_Line, record), record.place
        if line.chat_id in chats:
            raise BadRecord(f"{place}: `chat_id` {line.chat_id} stands twice")
        reading.check_context(place, line.input_length, line.output_length)
        if line.hash_ids:
            reading.check_blocks(place, line.input_length, len(line.hash_ids), block_tokens, floor=True)
        at_s = reading.arrival_s(place, "timestamp", line.timestamp)
        parent = chats.get(line.parent_chat_id)
        if parent is None and line.parent_chat_id != NO_PARENT:
            reading.report.note(Remark.ORPHAN, place.short)
        session_id, parent_turn = parent or (str(line.chat_id), NO_PARENT)
        state = book.of(session_id)
        turn = book.add_turn(state, place, line.input_length, line.output_length)
        branches = parent_turn != turn - 1
        if branches:
            reading.report.note(Remark.BRANCHED, place.short)
        chats[line.chat_id] = (session_id, turn)
        request = TraceRequest(
            session_id=session_id,
            turn=turn,
            input_tokens=line.input_length,
            output_tokens=line.output_length,
            at_s=at_s,
            after=parent_turn if branches else None,
            block_ids=tuple(line.hash_ids),
            line=place.number,
        )
        return [request]

    return reading.each(lines(reading.path), read)


FORMAT = Format(
    name="bailian",
    looks_like="JSON lines with `chat_id`, `parent_chat_id` and `input_length`",
    keys=frozenset({"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "turn", "hash_ids"}),
    matches=_matches,
    info=_info,
    read=_read,
)
