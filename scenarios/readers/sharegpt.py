"""ShareGPT: a JSON array (or JSON lines) of `id` and `conversations` of `from` and `value`.

A suffix `_N` of an id means that one long chat was cut into parts, which are joined: parts that stand side by side
as one conversation, a later one as further turns. As vLLM's converter does (read: vllm-project/vllm
benchmarks/multi_turn/convert_sharegpt_to_openai.py), a message that repeats the role at the seam is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from scenarios.readers.chat import ShareGptMessage, exchanges, read_role
from scenarios.readers.format import Format
from scenarios.readers.reading import Reading
from scenarios.readers.row import Row, parse
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import Place, Record, array_items, lines
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Message, TraceInfo, TraceRequest

PART = re.compile(r"(.+)_(\d+)")


class _Conversation(Row):
    id: str | int | None = None
    conversations: list[ShareGptMessage] = Field()


def _matches(sample: Sample) -> bool:
    conversations = sample.first("conversations")
    if sample.layout not in (Layout.ARRAY, Layout.LINES) or not isinstance(conversations, list):
        return False
    return not conversations or isinstance(conversations[0], dict)


def _info(_: Sample, __: int | None) -> TraceInfo:
    return TraceInfo(FORMAT.name, Clock.NONE, sessions_recorded=True)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    records = array_items if reading.sample.layout is Layout.ARRAY else lines
    parts = _Parts(reading)
    yield from reading.each(records(reading.path), parts.read)
    yield from parts.flush()


class _Parts:
    """Holds the conversation that is being joined; of earlier ones it knows their number of turns."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._turns: dict[str, int] = {}
        self._latest_part: dict[str, int] = {}
        self._base: str | None = None
        self._messages: list[Message] = []
        self._place: Place | None = None

    def read(self, record: Record) -> list[TraceRequest]:
        """Take one part; return the turns of the conversation before, when that has ended."""
        data, place, report = parse(_Conversation, record), record.place, self._reading.report
        found = PART.fullmatch(str(data.id)) if data.id is not None else None
        base = found[1] if found else str(data.id) if data.id is not None else f"{place.unit}-{place.number}"
        part = int(found[2]) if found else 0
        messages = [Message(read_role(place, m.speaker), m.value) for m in data.conversations]
        ended = [] if base == self._base else self.flush()
        if data.id is not None:
            self._note_part(base, part, place)
        if self._messages and messages and messages[0].role == self._messages[-1].role:
            report.note(Remark.SAME_ROLE, place.short)
            messages = messages[1:]
        self._base, self._place = base, self._place or place
        self._messages += messages
        return ended

    def _note_part(self, base: str, part: int, place: Place) -> None:
        latest = self._latest_part.get(base)
        if latest is not None:
            self._reading.report.note(Remark.JOINED, place.short)
            if part < latest:
                self._reading.report.note(Remark.PARTS_OUT_OF_ORDER, place.short)
        self._latest_part[base] = part if latest is None else max(part, latest)

    def flush(self) -> list[TraceRequest]:
        """Return the turns of the conversation that was being joined."""
        if self._base is None or self._place is None:
            return []
        first = self._turns.get(self._base, 0)
        new = exchanges(self._messages, self._place, self._reading.report)
        turns = [
            TraceRequest(
                session_id=self._base,
                turn=turn,
                input_tokens=None,
                output_tokens=None,
                messages=exchange.messages,
                reply=exchange.reply,
                line=self._place.number,
            )
            for turn, exchange in enumerate(new, start=first)
        ]
        if self._base in self._latest_part:
            self._turns[self._base] = first + len(turns)
        self._base, self._place, self._messages = None, None, []
        return turns


FORMAT = Format(
    name="sharegpt",
    looks_like="a JSON array of `conversations` of `from` and `value`",
    keys=frozenset({"id", "conversations"}),
    matches=_matches,
    info=_info,
    read=_read,
)
