"""The two APIs of the engine: how a session's growing history is asked, and which reply reads the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.load.history import SEPARATOR, Branches, check_turns
from harness.load.reply import ChatReply, GenerateReply, Reply
from scenarios.errors import ScenarioError
from scenarios.plan import Plan, Session, Turn


class History(Protocol):
    """What has been said in one session so far."""

    def ask(self, turn: Turn) -> bytes:
        """Add the user's words of the next turn, where it continues, and return the body of its request."""

    def join(self, turn: Turn, reply: Reply, *, whole: bool) -> None:
        """Add the scripted reply of `turn`, or the model's own when the plan has none or the user has left."""


class Api(Protocol):
    """One endpoint that streams replies."""

    @property
    def path(self) -> str:
        """Where requests go, below the base URL."""

    def check(self, plan: Plan) -> None:
        """Raise ScenarioError when `plan` does not carry what this API sends."""

    def history(self, session: Session) -> History:
        """Start the history of `session`."""

    def reply(self) -> Reply:
        """Start to read a reply."""


@dataclass(frozen=True, slots=True)
class ChatApi:
    """`/v1/chat/completions`, for plans of text."""

    model: str
    ignore_eos: bool = True
    absent_cache_means_zero: bool = False
    path: str = "/v1/chat/completions"

    def check(self, plan: Plan) -> None:
        """Raise ScenarioError at the first turn without text, or that continues no earlier one."""
        check_turns(plan)
        for session in plan.sessions:
            if any(turn.text is None for turn in session.turns):
                raise ScenarioError(
                    f"session {session.session_id} carries token ids, but the chat API sends text; play it "
                    "with the generate API"
                )

    def history(self, session: Session) -> History:
        """Start with the system text, when there is one."""
        options = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_cached_tokens_details": True,
            "temperature": 0,
            "ignore_eos": self.ignore_eos,
        }
        return _ChatHistory(options, session.system_text)

    def reply(self) -> Reply:
        """Start to read a chat stream."""
        return ChatReply(absent_cache_means_zero=self.absent_cache_means_zero)


@dataclass(frozen=True, slots=True)
class GenerateApi:
    """`/generate`, for plans of token ids."""

    ignore_eos: bool = True
    path: str = "/generate"

    def check(self, plan: Plan) -> None:
        """Raise ScenarioError at the first turn without token ids, or that continues no earlier one."""
        check_turns(plan)
        for session in plan.sessions:
            if any(turn.token_ids is None for turn in session.turns):
                raise ScenarioError(
                    f"session {session.session_id} carries text, but the generate API sends ids; play it "
                    "with the chat API"
                )

    def history(self, session: Session) -> History:
        """Start with the system tokens, when there are some."""
        return _TokenHistory(self.ignore_eos, session.system_token_ids or ())

    def reply(self) -> Reply:
        """Start to read a generate stream."""
        return GenerateReply()


class _ChatHistory:
    def __init__(self, options: dict[str, Any], system_text: str | None) -> None:
        self._options = options
        self._said = Branches(b"" if system_text is None else _message("system", system_text))

    def ask(self, turn: Turn) -> bytes:
        self._said.turn_to(turn)
        self._said.add(_message("user", turn.text or ""))
        options = {**self._options, "max_completion_tokens": turn.max_output_tokens}
        return json.dumps(options)[:-1].encode() + b', "messages": [' + self._said.elements() + b"]}"

    def join(self, turn: Turn, reply: Reply, *, whole: bool) -> None:
        text = turn.reply_text if whole and turn.reply_text is not None else reply.text
        self._said.add(_message("assistant", text))
        self._said.end_turn()


class _TokenHistory:
    def __init__(self, ignore_eos: bool, system_token_ids: Sequence[int]) -> None:
        self._ignore_eos = ignore_eos
        self._said = Branches(_ids(system_token_ids))

    def ask(self, turn: Turn) -> bytes:
        self._said.turn_to(turn)
        self._said.add(_ids(turn.token_ids or ()))
        sampling = {"max_new_tokens": turn.max_output_tokens, "temperature": 0, "ignore_eos": self._ignore_eos}
        options = json.dumps({"sampling_params": sampling, "stream": True})[1:].encode()
        return b'{"input_ids": [' + self._said.elements() + b"], " + options

    def join(self, turn: Turn, reply: Reply, *, whole: bool) -> None:
        scripted = turn.reply_token_ids if whole else None
        self._said.add(_ids(reply.token_ids if scripted is None else scripted))
        self._said.end_turn()


def _message(role: str, content: str) -> bytes:
    return json.dumps({"role": role, "content": content}).encode()


def _ids(token_ids: Sequence[int]) -> bytes:
    return SEPARATOR.join(b"%d" % token_id for token_id in token_ids)
