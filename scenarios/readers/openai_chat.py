"""OpenAI-style chat logs: JSON lines with `messages`.

Two kinds of line are read, and may be mixed. A line that ends in an assistant's message is a whole conversation, as
in fine-tuning files. A line that ends in a user's or tool's message, or that has the reply beside its messages, is
one request, as gateways and SGLang's `bench_serving --dataset-name openai` have it (read:
sgl-project/sglang python/sglang/benchmark/datasets/openai_dataset.py); requests of one conversation repeat its
history, by which they are joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import AliasChoices, Field

from scenarios.readers.chat import ChatMessage, GrowingLog, read_message, tools_message
from scenarios.readers.format import Format
from scenarios.readers.reading import Reading
from scenarios.readers.row import Row, Tokens, parse, present, same_fields
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import BadRecord, Place, Record, lines
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Message, TraceInfo, TraceRequest

SESSION_KEYS = ("session_id", "conversation_id", "thread_id")
TIME_KEYS = ("timestamp", "created", "created_at")
MOONCAKE_KEYS = ("hash_ids", "input_length", "output_length", "message_mode", "text_input", "delay")
MILLISECONDS_FROM = 1e11
"""Unix times above this are milliseconds: as seconds they would be after the year 5000."""


class _Choice(Row):
    message: ChatMessage


class _Usage(Row):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None


class _Response(Row):
    choices: list[_Choice] = Field(default_factory=list, max_length=1)
    usage: _Usage | None = None


class _Line(Row):
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[Any] | None = None
    session_id: str | int | None = Field(None, validation_alias=AliasChoices(*SESSION_KEYS))
    max_tokens: int | None = Field(None, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    timestamp: str | float | None = Field(None, validation_alias=AliasChoices(*TIME_KEYS))
    response: _Response | str | None = Field(None, validation_alias=AliasChoices("response", "completion"))


def _matches(sample: Sample) -> bool:
    if sample.layout is not Layout.LINES or any(sample.has(key) for key in MOONCAKE_KEYS):
        return False
    messages = sample.first("messages")
    return isinstance(messages, list) and bool(messages) and isinstance(messages[0], dict) and "role" in messages[0]


def _info(sample: Sample, _: int | None) -> TraceInfo:
    clock = Clock.TRACE if any(sample.has(key) for key in TIME_KEYS) else Clock.NONE
    return TraceInfo(FORMAT.name, clock, sessions_recorded=True)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    report, log = reading.report, GrowingLog(reading.report)
    first: tuple[Place, frozenset[str]] | None = None

    def read(record: Record) -> list[TraceRequest]:
        nonlocal first
        line = parse(_Line, record)
        place = record.place
        has = present(line, ("timestamp",))
        first = first or (place, has)
        same_fields(place, first[0], has, first[1])
        messages = [read_message(place, message, report) for message in line.messages]
        if line.tools:
            messages.insert(0, tools_message(line.tools, place, report))
        reply, usage = _reply(line, place, reading)
        if all(message.role in ("system", "assistant") for message in messages):
            report.note(Remark.EMPTY, place.short)
            return []
        clock_s = None if line.timestamp is None else unix_s(place, line.timestamp)
        reading.check_context(place, usage.prompt_tokens, usage.completion_tokens or line.max_tokens)
        at_s = None if clock_s is None else reading.arrival_s(place, "timestamp", clock_s)
        session_id = None if line.session_id is None else str(line.session_id)
        turns = log.add(session_id, messages, reply, place)
        if turns:
            turns[0] = replace(turns[0], at_s=at_s)
        if len(turns) == 1:
            output = usage.completion_tokens if usage.completion_tokens is not None else line.max_tokens
            turns[0] = replace(turns[0], input_tokens=usage.prompt_tokens, output_tokens=output)
        return turns

    return reading.each(lines(reading.path), read)


def _reply(line: _Line, place: Place, reading: Reading) -> tuple[Message | None, _Usage]:
    if line.response is None:
        return None, _Usage()
    if isinstance(line.response, str):
        return Message("assistant", line.response), _Usage()
    usage = line.response.usage or _Usage()
    if not line.response.choices:
        return None, usage
    return read_message(place, line.response.choices[0].message, reading.report), usage


def unix_s(place: Place, value: str | float) -> float:
    """Read a Unix time in seconds or milliseconds, or an ISO 8601 date, as seconds; raise BadRecord."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise BadRecord(f"{place}: `timestamp` is {value[:40]!r}, which is no ISO 8601 date and time") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if value < 0:
        raise BadRecord(f"{place}: `timestamp` is negative ({value:g})")
    return value / 1000 if value > MILLISECONDS_FROM else value


FORMAT = Format(
    name="openai-chat",
    looks_like="JSON lines with `messages` of `role` and `content`",
    keys=frozenset({"messages", "tools", "max_tokens", *SESSION_KEYS}),
    matches=_matches,
    info=_info,
    read=_read,
)
