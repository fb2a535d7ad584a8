"""Chat messages of whatever producer as ours, and conversations as turns."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from scenarios.readers.row import Row
from scenarios.readers.source import BadRecord, Place
from scenarios.reading_report import ReadingReport, Remark
from scenarios.trace import Message, TraceRequest

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Roles of OpenAI and ShareGPT (as vLLM's convert_sharegpt_to_openai.py reads them) by ours."""
REMEMBERED_PROMPTS = 100_000
"""Prompts of a growing log that a later line may continue. Bounds memory: older ones are forgotten."""


class ChatMessage(Row):
    """One message as the OpenAI API has it."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ShareGptMessage(Row):
    """One message as ShareGPT has it."""

    speaker: str = Field(alias="from")
    value: str


def read_message(place: Place, message: ChatMessage, report: ReadingReport) -> Message:
    """Translate a message; raise BadRecord for a role that nobody knows."""
    return Message(read_role(place, message.role), _text(place, message, report))


def read_role(place: Place, role: str) -> str:
    """Translate a role; raise BadRecord for one that nobody knows."""
    known = ROLES.get(role.lower())
    if known is None:
        raise BadRecord(f"{place}: unknown role {role[:40]!r}; known: {', '.join(ROLES)}")
    return known


def tools_message(tools: Sequence[Any], place: Place, report: ReadingReport) -> Message:
    """Make a message of tool definitions: they stand in front of every prompt, where chat templates put them."""
    report.note(Remark.TOOLS, place.short)
    return Message("system", json.dumps(tools, ensure_ascii=False, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is said before a reply, and the reply."""

    messages: tuple[Message, ...]
    reply: Message | None


def exchanges(messages: Iterable[Message], place: Place, report: ReadingReport) -> list[Exchange]:
    """Split a conversation at its replies. Replies in a row are one; a reply before anything was said is left out."""
    found: list[Exchange] = []
    said: list[Message] = []
    for message in messages:
        if message.role != "assistant":
            said.append(message)
        elif said:
            found.append(Exchange(tuple(said), message))
            said = []
        elif found and (reply := found[-1].reply):
            report.note(Remark.SAME_ROLE, place.short)
            found[-1] = Exchange(found[-1].messages, Message("assistant", f"{reply.text}\n{message.text}"))
        else:
            report.note(Remark.HEADLESS, place.short)
    if any(message.role != "system" for message in said):
        found.append(Exchange(tuple(said), None))
    if not found:
        report.note(Remark.EMPTY, place.short)
    return found


class _Session:
    """A conversation of a growing log."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.turns = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """A history that was seen: up to the prompt of a turn, or up to its reply."""

    session: _Session
    turn: int
    answered: bool


class GrowingLog:
    """Finds the conversation that a line of a chat log continues: the one whose messages it begins with."""

    def __init__(self, report: ReadingReport, remembered: int = REMEMBERED_PROMPTS) -> None:
        self._report = report
        self._remembered = remembered
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._named: dict[str, _Session] = {}

    def add(
        self, session_id: str | None, messages: Sequence[Message], reply: Message | None, place: Place
    ) -> list[TraceRequest]:
        """Return the turns that a line adds.

        A line with a reply, or that ends in a user's or tool's message, is one request; one that ends in an
        assistant's message is a conversation, and each of its replies makes a turn.
        """
        known, length = self._continued(session_id, messages)
        fresh = messages[length:]
        if reply is not None or (messages and messages[-1].role != "assistant"):
            new = [Exchange(tuple(fresh), reply)]
        else:
            late = _late_reply(fresh) if known is not None and not known.answered else ()
            new = exchanges(fresh[len(late) :], place, self._report)
            if late and new:
                new[0] = Exchange((*late, *new[0].messages), new[0].reply)
        session, after = self._place(session_id, known, place)
        return self._turns(session, after, messages[:length], new, place)

    def _continued(self, session_id: str | None, messages: Sequence[Message]) -> tuple[_Known | None, int]:
        """Find the longest known history that `messages` go on from, and its length."""
        best: tuple[_Known | None, int] = (None, 0)
        digest = _seed(session_id)
        for length, message in enumerate(messages[:-1], start=1):
            digest = _extend(digest, message)
            known = self._known.get(digest)
            # After a prompt comes its reply, which the log may only now show; anything else is another prompt.
            if known is not None and (known.answered or messages[length].role == "assistant"):
                best = (known, length)
        return best

    def _place(self, session_id: str | None, known: _Known | None, place: Place) -> tuple[_Session, int | None]:
        """Return the session of a line, and the turn that it goes on from unless that is the latest."""
        if known is not None:
            session = known.session
            after = None if known.turn == session.turns - 1 else known.turn
            if after is not None:
                self._report.note(Remark.BRANCHED, place.short)
            return session, after
        if session_id is None:
            return _Session(f"{place.unit}-{place.number}"), None
        session = self._named.setdefault(session_id, _Session(session_id))
        if session.turns:
            self._report.note(Remark.REWRITTEN, place.short)
            return session, -1
        return session, None

    def _turns(
        self, session: _Session, after: int | None, history: Sequence[Message], new: list[Exchange], place: Place
    ) -> list[TraceRequest]:
        named = session.session_id if session.session_id in self._named else None
        digest = _seed(named)
        for message in history:
            digest = _extend(digest, message)
        turns: list[TraceRequest] = []
        for exchange in new:
            turn = session.turns
            session.turns += 1
            for message in exchange.messages:
                digest = _extend(digest, message)
            self._remember(digest, _Known(session, turn, answered=False))
            if exchange.reply is not None:
                digest = _extend(digest, exchange.reply)
                self._remember(digest, _Known(session, turn, answered=True))
            turns.append(
                TraceRequest(
                    session_id=session.session_id,
                    turn=turn,
                    input_tokens=None,
                    output_tokens=None,
                    after=after if exchange is new[0] else None,
                    messages=exchange.messages,
                    reply=exchange.reply,
                    line=place.number,
                )
            )
        return turns

    def _remember(self, digest: bytes, known: _Known) -> None:
        self._known[digest] = known
        self._known.move_to_end(digest)
        while len(self._known) > self._remembered:
            self._known.popitem(last=False)


def _late_reply(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the replies that stand first: those to the prompt of the line before."""
    replies = next((n for n, message in enumerate(messages) if message.role != "assistant"), len(messages))
    return messages[:replies]


def _seed(session_id: str | None) -> bytes:
    return b"" if session_id is None else session_id.encode()


def _extend(digest: bytes, message: Message) -> bytes:
    text = f"{message.role}\0{message.text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=hashlib.blake2b(digest, digest_size=32).digest(), digest_size=16).digest()


def _text(place: Place, message: ChatMessage, report: ReadingReport) -> str:
    parts: list[str] = []
    if isinstance(message.content, str):
        parts.append(message.content)
    for part in message.content if isinstance(message.content, list) else ():
        text = part.get("text")
        if isinstance(text, str):
            parts.append(text)
        else:
            report.note(Remark.NOT_TEXT, place.short)
    for call in message.tool_calls or ():
        parts.append(json.dumps(call.get("function", call), ensure_ascii=False, separators=(",", ":")))
    return "\n".join(parts)
