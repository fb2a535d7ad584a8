"""The two APIs of the engine: how a session's growing history is asked, and which reply reads the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.load.reply import ChatReply, GenerateReply, Reply
from scenarios.errors import ScenarioError
from scenarios.plan import Plan, Session, Turn


class History(Protocol):
    """What has been said in one session so far."""

    def ask(self, turn: Turn) -> bytes:
        """Add the user's words of `turn` and return the body of its request."""

    def join(self, turn: Turn, reply: Reply) -> None:
        """Add the scripted reply of `turn`, or the model's own when the plan has none."""


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
        """Raise ScenarioError at the first turn without text."""
        for session in plan.sessions:
            if any(turn.text is None for turn in session.turns):
                raise ScenarioError(
                    f"session {session.session_id} carries token ids, but the chat API sends text; play it "
                    "with the generate API"
                )

    def history(self, session: Session) -> History:
        """Start with the system text, when there is one."""
        system = [] if session.system_text is None else [_message("system", session.system_text)]
        options = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_cached_tokens_details": True,
            "temperature": 0,
            "ignore_eos": self.ignore_eos,
        }
        return _ChatHistory(options, system)

    def reply(self) -> Reply:
        """Start to read a chat stream."""
        return ChatReply(absent_cache_means_zero=self.absent_cache_means_zero)


@dataclass(frozen=True, slots=True)
class GenerateApi:
    """`/generate`, for plans of token ids."""

    ignore_eos: bool = True
    path: str = "/generate"

    def check(self, plan: Plan) -> None:
        """Raise ScenarioError at the first turn without token ids."""
        for session in plan.sessions:
            if any(turn.token_ids is None for turn in session.turns):
                raise ScenarioError(
                    f"session {session.session_id} carries text, but the generate API sends ids; play it "
                    "with the chat API"
                )

    def history(self, session: Session) -> History:
        """Start with the system tokens, when there are some."""
        return _TokenHistory(self.ignore_eos, list(session.system_token_ids or ()))

    def reply(self) -> Reply:
        """Start to read a generate stream."""
        return GenerateReply()


@dataclass(slots=True)
class _ChatHistory:
    options: dict[str, Any]
    messages: list[dict[str, str]] = field(default_factory=list)

    def ask(self, turn: Turn) -> bytes:
        self.messages.append(_message("user", turn.text or ""))
        body = {**self.options, "max_completion_tokens": turn.max_output_tokens, "messages": self.messages}
        return json.dumps(body).encode()

    def join(self, turn: Turn, reply: Reply) -> None:
        text = reply.text if turn.reply_text is None else turn.reply_text
        self.messages.append(_message("assistant", text))


@dataclass(slots=True)
class _TokenHistory:
    ignore_eos: bool
    token_ids: list[int]

    def ask(self, turn: Turn) -> bytes:
        self.token_ids += turn.token_ids or ()
        sampling = {"max_new_tokens": turn.max_output_tokens, "temperature": 0, "ignore_eos": self.ignore_eos}
        return json.dumps({"input_ids": self.token_ids, "sampling_params": sampling, "stream": True}).encode()

    def join(self, turn: Turn, reply: Reply) -> None:
        self.token_ids += reply.token_ids if turn.reply_token_ids is None else turn.reply_token_ids


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
