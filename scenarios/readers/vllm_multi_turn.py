"""Conversations for vLLM's benchmark_serving_multi_turn.py: a JSON array of `id` and `messages` of `role`, `content`.

Read: vllm-project/vllm benchmarks/multi_turn/bench_dataset.py (conversations_list_to_dict) and
convert_sharegpt_to_openai.py. Its other input, a `generate_conversations` config, is no trace and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from scenarios.readers.chat import ChatMessage, exchanges, read_message
from scenarios.readers.format import Format
from scenarios.readers.reading import Reading
from scenarios.readers.row import Row, parse
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import BadRecord, Record, array_items
from scenarios.trace import Clock, TraceError, TraceInfo, TraceRequest

CONFIG = "generate_conversations"


class _Conversation(Row):
    id: str | int | None = None
    messages: list[ChatMessage] = Field(min_length=1)


def _matches(sample: Sample) -> bool:
    config = sample.first("filetype") == CONFIG
    return config or (sample.layout is Layout.ARRAY and isinstance(sample.first("messages"), list))


def _info(sample: Sample, _: int | None) -> TraceInfo:
    if sample.first("filetype") == CONFIG:
        raise TraceError(
            f"{sample.path}: a `{CONFIG}` config of vLLM describes random conversations and holds none; "
            "write a scenario with the same turns and lengths, or give the conversations themselves"
        )
    return TraceInfo(FORMAT.name, Clock.NONE, sessions_recorded=True)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    seen: set[str] = set()

    def read(record: Record) -> list[TraceRequest]:
        data, place = parse(_Conversation, record), record.place
        session_id = f"{place.unit}-{place.number}" if data.id is None else str(data.id)
        if session_id in seen:
            raise BadRecord(f"{place}: `id` {session_id[:40]!r} stands twice")
        messages = [read_message(place, message, reading.report) for message in data.messages]
        seen.add(session_id)
        return [
            TraceRequest(
                session_id=session_id,
                turn=turn,
                input_tokens=None,
                output_tokens=None,
                messages=exchange.messages,
                reply=exchange.reply,
                line=place.number,
            )
            for turn, exchange in enumerate(exchanges(messages, place, reading.report))
        ]

    return reading.each(array_items(reading.path), read)


FORMAT = Format(
    name="vllm-multi-turn",
    looks_like="a JSON array of `messages` of `role` and `content`",
    keys=frozenset({"id", "messages"}),
    matches=_matches,
    info=_info,
    read=_read,
)
