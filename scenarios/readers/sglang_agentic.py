"""SGLang's agentic_trace: a JSON object with `conversations`, each a list of turns of new messages.

Read: sgl-project/sglang python/sglang/benchmark/datasets/agentic_trace.py: `messages` holds only the new messages
that are no replies; `prompt_tokens` is the whole prompt; replies are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from scenarios.readers.chat import ChatMessage, read_message
from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, SessionBook
from scenarios.readers.row import PromptTokens, Row, parse
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import Record, object_items
from scenarios.trace import Clock, TraceInfo, TraceRequest

KEY = "conversations"


class _Turn(Row):
    messages: list[ChatMessage] = Field(default_factory=list)
    prompt_tokens: PromptTokens | None = None


class _Conversation(Row):
    turns: list[_Turn]


def _matches(sample: Sample) -> bool:
    conversations = sample.first(KEY)
    single = sample.layout in (Layout.OBJECT, Layout.LINES)
    return single and isinstance(conversations, list) and bool(conversations) and isinstance(conversations[0], list)


def _info(_: Sample, __: int | None) -> TraceInfo:
    return TraceInfo(FORMAT.name, Clock.NONE, sessions_recorded=True)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    report = reading.report
    book = SessionBook(report)

    def read(record: Record) -> list[TraceRequest]:
        place = record.place
        conversation = parse(_Conversation, Record(place, {"turns": record.data}, {}))
        session_id = f"conversation-{place.number}"
        state = book.of(session_id)
        said = [
            (tuple(read_message(place, message, report) for message in turn.messages), turn)
            for turn in conversation.turns
            if turn.messages
        ]
        for _, turn in said:
            reading.check_context(place, turn.prompt_tokens, None)
        return [
            TraceRequest(
                session_id=session_id,
                turn=book.add_turn(state, place, turn.prompt_tokens, None),
                input_tokens=turn.prompt_tokens,
                output_tokens=None,
                messages=messages,
                line=place.number,
            )
            for messages, turn in said
        ]

    return reading.each(object_items(reading.path, KEY), read)


FORMAT = Format(
    name="sglang-agentic",
    looks_like="a JSON object with `conversations`, lists of turns with `messages`",
    keys=frozenset({"metadata", KEY}),
    matches=_matches,
    info=_info,
    read=_read,
)
