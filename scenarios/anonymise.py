"""Traces without words: lengths, times and sharing stay, everything that was said or named goes.

Text becomes blocks of tokens that are hashed under a random salt which is thrown away, so that equal beginnings stay
equal within the file, nobody can test a guess, and two files cannot be compared. Recorded block ids are replaced in
the same way, because some producers hash text without a salt.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from scenarios.reading_report import ReadingReport
from scenarios.summary import TEMPLATE_TOKENS
from scenarios.token_blocks import TokenBlocks, block_number
from scenarios.tokenizer import PromptTokenizer
from scenarios.trace import Message, Scope, Trace, TraceError, TraceInfo, TraceRequest, TraceSession
from scenarios.trace_file import TraceTotals, write_sessions
from scenarios.trace_sessions import trace_sessions

BLOCK_TOKENS = 16
SALT_BYTES = 32
ROLE_TOKENS = {"system": -1, "user": -2, "assistant": -3, "tool": -4}
"""Stand for what a chat template puts around a message; no vocabulary has them."""


def anonymise(
    trace: Trace, path: Path, tokenizer: PromptTokenizer | None, *, block_tokens: int = BLOCK_TOKENS
) -> TraceTotals:
    """Write `trace` to `path` without its words; raise TraceError when text has to be counted and nothing counts it."""
    worker = _Worker(trace, tokenizer, block_tokens, secrets.token_bytes(SALT_BYTES))
    first = next(iter(trace.requests()), None)
    info = trace.info if first is None else worker.info(first)
    nothing_said = ReadingReport()  # messages quote what they found
    return write_sessions(info, worker.sessions(), nothing_said, path)


class _Worker:
    def __init__(self, trace: Trace, tokenizer: PromptTokenizer | None, block_tokens: int, salt: bytes) -> None:
        self._trace = trace
        self._tokenizer = tokenizer
        self._block_tokens = block_tokens
        self._salt = salt

    def info(self, first: TraceRequest) -> TraceInfo:
        """Say what holds for the result."""
        info = self._trace.info
        if first.messages:
            return replace(info, block_tokens=self._block_tokens, scope=Scope.GLOBAL)
        return info

    def sessions(self) -> Iterator[TraceSession]:
        """Yield the sessions under numbers for names."""
        for number, session in enumerate(trace_sessions(self._trace)):
            name = f"s{number}"
            has_text = any(turn.messages for turn in session.turns)
            turns = self._from_text(session) if has_text else self._from_blocks(session)
            yield TraceSession(name, session.start_s, tuple(replace(turn, session_id=name) for turn in turns))

    def _from_blocks(self, session: TraceSession) -> Iterator[TraceRequest]:
        local = self._trace.info.scope is Scope.LOCAL
        namespace = session.session_id.encode("utf-8", "surrogatepass") if local else b""
        known: dict[int, int] = {}
        for turn in session.turns:
            for block in turn.block_ids:
                if block not in known:
                    digest = hashlib.blake2b(b"%d:%b" % (block, namespace), key=self._salt, digest_size=16).digest()
                    known[block] = block_number(digest)
            yield replace(turn, block_ids=tuple(known[block] for block in turn.block_ids))

    def _from_text(self, session: TraceSession) -> Iterator[TraceRequest]:
        histories: list[TokenBlocks] = []
        for turn in session.turns:
            after = turn.turn - 1 if turn.after is None else turn.after
            prompt = histories[after].copy() if after >= 0 else TokenBlocks(self._block_tokens, self._salt)
            for message in turn.messages:
                prompt.extend(self._tokens(message, turn))
            ids, length, output = prompt.ids(), len(prompt), turn.output_tokens
            if turn.reply is not None:
                reply = self._tokens(turn.reply, turn)
                output = len(reply) - TEMPLATE_TOKENS
                prompt.extend(reply)
            histories.append(prompt)
            yield replace(turn, input_tokens=length, output_tokens=output, block_ids=ids, messages=(), reply=None)

    def _tokens(self, message: Message, turn: TraceRequest) -> list[int]:
        if self._tokenizer is None:
            raise TraceError(
                f"this {self._trace.info.format} trace holds text (line {turn.line}), whose length in tokens only a "
                "tokenizer knows: give --model, a model's folder or name (characters / 4 would be a guess)"
            )
        return [ROLE_TOKENS[message.role]] * TEMPLATE_TOKENS + self._tokenizer.ids(message.text)
