"""What an event stream says: when tokens came, how many, from which cache tier, and whether all went well.

One class for each API, with one interface: `feed` events with the time of the read that completed them, then
ask `problem`.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

MAX_ERROR_CHARS = 300
_DONE = "[DONE]"


class Reply:
    """The reply to one request, as far as it has come. Times are monotonic ns; None means unknown."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.delta_times_ns: list[int] = []
        """When each non-empty delta came: the first stops the TTFT clock."""
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.device_cached_tokens: int | None = None
        self.host_cached_tokens: int | None = None
        self.storage_cached_tokens: int | None = None
        self.error: str | None = None
        self.finished = False
        """The engine gave its reason for stopping."""
        self.done = False
        """Nothing more can come: the end mark or an error was read."""

    def feed(self, event: str, now_ns: int) -> None:
        """Take one event; empty ones are keep-alives."""
        if self.done:
            return
        try:
            chunk = orjson.loads(event)
        except ValueError:
            self._feed_unusual(event, now_ns)
        else:
            self._feed_json(chunk, now_ns)

    def _feed_unusual(self, event: str, now_ns: int) -> None:
        """Take what is no strict JSON: a keep-alive, the end mark, or what Python's own reader takes, such as NaN."""
        text = event.strip()
        if text == _DONE:
            self.done = True
        elif text:
            try:
                chunk = json.loads(text)
            except (ValueError, RecursionError):
                self.fail(f"an event is not JSON: {event}")
            else:
                self._feed_json(chunk, now_ns)

    def _feed_json(self, chunk: object, now_ns: int) -> None:
        if not isinstance(chunk, dict):
            self.fail(f"an event is not a JSON object: {chunk}")
        elif (error := error_in(chunk)) is not None:
            self.fail(error)
        else:
            self._take(chunk, now_ns)

    def problem(self) -> str | None:
        """Say why this is no complete reply, or None when it is one."""
        if self.error is not None:
            return self.error
        if not (self.done or self.finished):
            return "the stream ended before the reply did"
        if not self.delta_times_ns:
            return "the stream ended without a token"
        return None

    def fail(self, error: str) -> None:
        """Note an error and listen no more; what came before stays."""
        self.error = error[:MAX_ERROR_CHARS]
        self.done = True

    def _take(self, chunk: dict[str, Any], now_ns: int) -> None:
        raise NotImplementedError

    def _finish(self, reason: str, message: object) -> None:
        if reason == "abort":
            self.fail(f"the engine aborted the request: {message or 'no reason given'}")
        self.finished = True

    def _take_tiers(self, details: dict[str, Any]) -> None:
        self.device_cached_tokens = _count(details.get("device"))
        self.host_cached_tokens = _count(details.get("host"))
        # SGLang leaves `storage` out exactly when there is no storage tier and nothing came from one.
        self.storage_cached_tokens = _count(details.get("storage", 0))

    def _nothing_cached(self) -> None:
        self.cached_tokens = self.device_cached_tokens = self.host_cached_tokens = self.storage_cached_tokens = 0


class ChatReply(Reply):
    """A stream of `/v1/chat/completions`.

    A chat reply cannot say "0 cached": SGLang then leaves all cache fields out. `absent_cache_means_zero` is
    for engines known to report (0.5.15 does when `return_cached_tokens_details` asks); else it is unknown.
    """

    def __init__(self, *, absent_cache_means_zero: bool = False) -> None:
        super().__init__()
        self._absent_cache_means_zero = absent_cache_means_zero

    def _take(self, chunk: dict[str, Any], now_ns: int) -> None:
        for choice in _list(chunk.get("choices")):
            self._take_choice(_object(choice), now_ns)
        if details := _object(_object(chunk.get("sglext")).get("cached_tokens_details")):
            self._take_tiers(details)
            tiers = (self.device_cached_tokens, self.host_cached_tokens, self.storage_cached_tokens)
            self.cached_tokens = sum(tier or 0 for tier in tiers)
        if usage := _object(chunk.get("usage")):
            self._take_usage(usage)

    def _take_choice(self, choice: dict[str, Any], now_ns: int) -> None:
        delta = _object(choice.get("delta"))
        content = _text(delta.get("content"))
        if content or delta.get("reasoning_content") or _calls_a_tool(delta.get("tool_calls")):
            self.delta_times_ns.append(now_ns)
        self.text += content
        if reason := choice.get("finish_reason"):
            self._finish(str(reason), None)

    def _take_usage(self, usage: dict[str, Any]) -> None:
        self.prompt_tokens = _count(usage.get("prompt_tokens"))
        self.output_tokens = _count(usage.get("completion_tokens"))
        cached = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
        if cached == 0 or (cached is None and self.cached_tokens is None and self._absent_cache_means_zero):
            self._nothing_cached()
        elif cached is not None:
            self.cached_tokens = cached


class GenerateReply(Reply):
    """A stream of `/generate`: a chunk repeats the whole reply, or only its news (incremental server)."""

    def _take(self, chunk: dict[str, Any], now_ns: int) -> None:
        meta = _object(chunk.get("meta_info"))
        output_tokens = _count(meta.get("completion_tokens"))
        if self._grow(_text(chunk.get("text")), _list(chunk.get("output_ids")), output_tokens):
            self.delta_times_ns.append(now_ns)
        self._take_meta(meta)
        if reason := meta.get("finish_reason"):
            why = _object(reason)
            self._finish(str(why.get("type", reason)), why.get("message"))

    def _grow(self, text: str, token_ids: list[int], output_tokens: int | None) -> bool:
        """Add what is new; True when anything was."""
        before = len(self.text), len(self.token_ids)
        # The count is cumulative either way: ids that fit into it beside the known ones are new ones.
        incremental = output_tokens is not None and len(self.token_ids) + len(token_ids) <= output_tokens
        if incremental:
            self.text += text
            self.token_ids += token_ids
        else:
            self.text, self.token_ids = text, list(token_ids)
        return len(self.text) > before[0] or len(self.token_ids) > before[1]

    def _take_meta(self, meta: dict[str, Any]) -> None:
        self.prompt_tokens = _count(meta.get("prompt_tokens"))
        self.output_tokens = _count(meta.get("completion_tokens"))
        self.cached_tokens = _count(meta.get("cached_tokens"))
        if details := _object(meta.get("cached_tokens_details")):
            self._take_tiers(details)
        elif self.cached_tokens == 0:
            self._nothing_cached()


def error_in(body: dict[str, Any]) -> str | None:
    """Find the error message of a response or event in any shape that SGLang gives it."""
    error = body.get("error")
    if error is None and body.get("object") == "error":
        error = body
    if not error:
        return None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message or error)[:MAX_ERROR_CHARS]


def _calls_a_tool(calls: object) -> bool:
    functions = [_object(_object(call).get("function")) for call in _list(calls)]
    return any(function.get("name") or function.get("arguments") for function in functions)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
