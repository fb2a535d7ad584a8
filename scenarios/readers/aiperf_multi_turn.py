"""aiperf's multi_turn: JSON lines with `turns`, one session a line.

Read: ai-dynamo/aiperf src/aiperf/dataset/loader/models.py (classes MultiTurn and SingleTurn) and multi_turn.py: a turn
has `text` or `texts` (strings, or objects with `contents`), and `timestamp` or `delay` (ms); a first turn of the role
system is the session's system prompt; lines with one `session_id` are one session; media are not text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from scenarios.readers.chat import read_role
from scenarios.readers.format import Format
from scenarios.readers.reading import Reading, SessionBook, SessionState
from scenarios.readers.row import Duration, Row, Tokens, TurnTimes, parse, present
from scenarios.readers.sample import Layout, Sample
from scenarios.readers.source import BadRecord, Place, Record, lines
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Message, TraceInfo, TraceRequest

MS = 1000.0
TIMES = ("delay", "timestamp")
MEDIA = ("image", "images", "audio", "audios", "video", "videos")


class _Turn(Row):
    text: str | None = None
    texts: list[str | dict[str, Any]] | None = None
    timestamp: Duration | None = None
    delay: Duration | None = None
    role: str | None = None
    output_length: Tokens | None = None
    image: Any = None
    images: Any = None
    audio: Any = None
    audios: Any = None
    video: Any = None
    videos: Any = None


class _Line(Row):
    session_id: str | None = None
    turns: list[_Turn] = Field(min_length=1)


def _matches(sample: Sample) -> bool:
    turns = sample.first("turns")
    if sample.layout is not Layout.LINES or not isinstance(turns, list) or not turns or not isinstance(turns[0], dict):
        return False
    return any(key in turns[0] for key in ("text", "texts", *MEDIA))


def _info(sample: Sample, _: int | None) -> TraceInfo:
    turns = sample.first("turns")
    timed = any(isinstance(turn, dict) and turn.get("timestamp") is not None for turn in turns)
    return TraceInfo(FORMAT.name, Clock.TRACE if timed else Clock.NONE, sessions_recorded=True)


def _read(reading: Reading) -> Iterator[TraceRequest]:
    reader = _Reader(reading)
    return reading.each(lines(reading.path), reader.read)


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.book = SessionBook(reading.report)
        self.times = TurnTimes(("delay",))

    def read(self, record: Record) -> list[TraceRequest]:
        line, place = parse(_Line, record), record.place
        session_id = line.session_id or f"{place.unit}-{place.number}"
        turns = list(line.turns)
        system: tuple[Message, ...] = ()
        state = self.book.of(session_id)
        if state.turns == 0 and turns[0].role == "system" and len(turns) > 1 and not present(turns[0], TIMES):
            system = (Message("system", self._text(place, turns.pop(0))),)
        said = [self._message(place, turn) for turn in turns]
        self._check_times(place, turns, state)
        requests = []
        for turn, message in zip(turns, said, strict=True):
            requests.append(self._request(session_id, state, turn, (*system, message), place))
            system = ()
        return requests

    def _request(
        self, session_id: str, state: SessionState, turn: _Turn, messages: tuple[Message, ...], place: Place
    ) -> TraceRequest:
        if state.turns == 0 and turn.delay:
            self.reading.report.note(Remark.START_OFFSET, place.short)
        return TraceRequest(
            session_id=session_id,
            turn=self.book.add_turn(state, place, None, turn.output_length),
            input_tokens=None,
            output_tokens=turn.output_length,
            at_s=None if turn.timestamp is None else turn.timestamp / MS,
            think_s=None if turn.delay is None else turn.delay / MS,
            messages=messages,
            line=place.number,
        )

    def _check_times(self, place: Place, turns: list[_Turn], state: SessionState) -> None:
        """Check that turns are timed alike and that times do not go back; raise BadRecord."""
        latest_ms = state.ended_s or 0.0
        for number, turn in enumerate(turns):
            has = present(turn, TIMES)
            self.times.check(place, has, opens=state.turns + number == 0)
            if turn.timestamp is not None:
                if turn.timestamp < latest_ms:
                    raise BadRecord(f"{place}: `turns.{number}.timestamp` is before that of the turn before it")
                latest_ms = turn.timestamp
        state.ended_s = latest_ms

    def _message(self, place: Place, turn: _Turn) -> Message:
        role = read_role(place, turn.role or "user")
        if role == "assistant":
            raise BadRecord(f"{place}: a turn has the role assistant; aiperf's turns are what is sent")
        return Message(role, self._text(place, turn))

    def _text(self, place: Place, turn: _Turn) -> str:
        if present(turn, MEDIA):
            self.reading.report.note(Remark.NOT_TEXT, place.short)
        if turn.text is not None:
            return turn.text
        parts: list[str] = []
        for text in turn.texts or ():
            parts += [text] if isinstance(text, str) else [str(content) for content in text.get("contents", [])]
        return "\n".join(parts)


FORMAT = Format(
    name="aiperf-multi-turn",
    looks_like="JSON lines with `turns` of `text` and `delay` or `timestamp`",
    keys=frozenset({"session_id", "turns"}),
    matches=_matches,
    info=_info,
    read=_read,
)
