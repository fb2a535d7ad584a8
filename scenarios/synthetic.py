"""Sessions of users that are drawn at random, to the very words.

Every session has random streams of its own, so more sessions or another concurrency leave the others as they
were, and its lengths do not depend on the tokenizer or on the form of its prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeVar

import numpy as np

from scenarios.casting import PHASES, Role, Sketch
from scenarios.errors import ScenarioError
from scenarios.model import Api, Portion
from scenarios.plan import Session, Turn
from scenarios.prompts import LEAD, PromptWriter, Script
from scenarios.shape import BEGINNING, SessionShape, TurnShape, draw_shape
from scenarios.tokenizer import PromptTokenizer
from scenarios.users import Users

PartT = TypeVar("PartT")

_NUMBERED_ROLES = 5
"""Sessions are numbered over the first roles in turn; another figure would give other first words."""
_SHARED_NUMBERS = 1_000_000
"""Documents and examples are numbered from here on, away from sessions."""
_LEAST_AFTER_BLOCKS = 2
"""A tokenizer of bytes needs two tokens for a space and a letter."""
_KEPT_OPENINGS = 256
_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, are spread evenly however many are taken."""


@dataclass(frozen=True, slots=True)
class _Message:
    """Words in one of their two forms."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    tokens: int = 0
    """Of a block: what it adds to a message."""


class Pen:
    """Writes messages for one seed in one form, whatever users they are of."""

    def __init__(self, tokenizer: PromptTokenizer, seed: int, api: Api) -> None:
        self.seed = seed
        self._tokenizer = tokenizer
        self._api = api
        self._lead_tokens = tokenizer.count(LEAD)
        self._opening = lru_cache(_KEPT_OPENINGS)(self._join)
        self._writer = cache(lambda script: PromptWriter(tokenizer, seed, script))

    def message(
        self,
        rng: np.random.Generator,
        tokens: int,
        *,
        script: Script,
        number: int | None = None,
        blocks: Sequence[_Message] = (),
    ) -> _Message:
        """Write a message of `tokens` tokens, after the `blocks` that it shares with others.

        Blocks keep their tokens wherever they stand; in words, a message with blocks has at least 3 tokens of its own.
        """
        writer = self._writer(script)
        if self._api == "generate":
            own = writer.token_ids(rng, tokens, number)
            return _Message(token_ids=(*(i for block in blocks for i in block.token_ids or ()), *own))
        if not blocks:
            return _Message(text=writer.text(rng, tokens, number))
        own_tokens = max(_LEAST_AFTER_BLOCKS, tokens - self._lead_tokens)
        own_text = writer.text(rng, own_tokens, number, lead=LEAD)
        return _Message(text=f"{self._opening(tuple(blocks))} {own_text}")

    def block(self, rng: np.random.Generator, tokens: int, number: int, script: Script) -> _Message:
        """Write a block of exactly `tokens` tokens that messages share."""
        writer = self._writer(script)
        if self._api == "generate":
            return _Message(token_ids=writer.token_ids(rng, tokens, number), tokens=tokens)
        return _Message(text=writer.text(rng, tokens, number, lead=LEAD), tokens=tokens)

    def _join(self, blocks: tuple[_Message, ...]) -> str:
        text = " ".join([LEAD, *(block.text or "" for block in blocks)])
        if self._tokenizer.count(text) != self._lead_tokens + sum(block.tokens for block in blocks):
            raise ScenarioError(
                f"the tokenizer of {self._tokenizer.name} counts joined texts otherwise than their parts, so what "
                "they share would not be exact; use `api: generate`"
            )
        return text

    def streams(self, *key: int) -> tuple[np.random.Generator, np.random.Generator]:
        """Return one stream for lengths and times and one for words, both of this key alone."""
        shape, words = np.random.SeedSequence(self.seed, spawn_key=key).spawn(2)
        return np.random.default_rng(shape), np.random.default_rng(words)


class UserSource:
    """Sessions of one kind of user; `part` and `label` tell them from the others of a mix."""

    def __init__(self, users: Users, pen: Pen, *, part: int | None = None, label: str = "") -> None:
        self._users = users
        self._pen = pen
        self._key = () if part is None else (part,)
        self._first_number = 0 if part is None else part * _SHARED_NUMBERS // 100
        self._label = label
        self._system_prompt = cache(self._make_system_prompt)
        self._document = cache(self._make_document)
        self._examples = cache(self._make_examples)

    def sketch(self, role: Role, index: int) -> Sketch:
        """Sketch the session number `index` of `role`."""
        rng, words = self._pen.streams(*self._key, role, index)
        shape = draw_shape(self._users, rng, opening=role is Role.OPENING)

        def write(start_s: float) -> Session:
            return self._write(shape, words, role, index, start_s)

        return Sketch(shape.nominal_s, write, shape.arrival_share)

    def _write(
        self, shape: SessionShape, words: np.random.Generator, role: Role, index: int, start_s: float
    ) -> Session:
        number = index * _NUMBERED_ROLES + role
        system = _Message()
        if shape.system_prompt is not None:
            system = self._system_prompt(shape.system_prompt)
        elif shape.system_tokens:
            system = self._pen.message(words, shape.system_tokens, script=shape.script, number=number)
        return Session(
            session_id=f"{self._label}{role.name.lower()}-{self._pen.seed}-{index}",
            phase=PHASES[role],
            turns=self._turns(shape, words, number),
            start_s=start_s,
            system_text=system.text,
            system_token_ids=system.token_ids,
        )

    def _turns(self, shape: SessionShape, words: np.random.Generator, number: int) -> tuple[Turn, ...]:
        turns: list[Turn] = []
        message = _Message()
        for turn in shape.turns:
            if not turn.repeats:
                message = self._message(shape, turn, words, None if turns else number, first=not turns)
            reply = _Message()
            if self._users.reply == "scripted":
                reply = self._pen.message(words, turn.output_tokens, script=shape.script)
            turns.append(
                Turn(
                    think_s=turn.think_s,
                    max_output_tokens=turn.output_tokens,
                    after=turn.after,
                    cancel_after_tokens=turn.cancel_after_tokens,
                    text=message.text,
                    token_ids=message.token_ids,
                    reply_text=reply.text,
                    reply_token_ids=reply.token_ids,
                )
            )
        return tuple(turns)

    def _message(
        self, shape: SessionShape, turn: TurnShape, words: np.random.Generator, number: int | None, *, first: bool
    ) -> _Message:
        blocks = [self._document(document) for document in turn.documents]
        if shape.task is not None and (first or turn.after == BEGINNING):
            blocks.insert(0, self._examples(shape.task))
        return self._pen.message(words, turn.user_tokens, script=shape.script, number=number, blocks=blocks)

    def _make_system_prompt(self, index: int) -> _Message:
        prompts = _given(self._users.system_prompts)
        rng, words = self._pen.streams(*self._key, Role.SYSTEM_PROMPT, index)
        number = self._first_number + index
        return self._pen.message(words, prompts.tokens.draw_whole(rng), script=self._script(index), number=number)

    def _make_document(self, index: int) -> _Message:
        documents = _given(self._users.documents)
        rng, words = self._pen.streams(*self._key, Role.DOCUMENT, index)
        return self._pen.block(words, documents.tokens.draw_whole(rng), self._shared(2 * index), self._script(index))

    def _make_examples(self, task: int) -> _Message:
        examples = _given(self._users.examples)
        rng, words = self._pen.streams(*self._key, Role.EXAMPLES, task)
        tokens = sum(examples.tokens.draw_whole(rng) for _ in range(examples.per_task))
        return self._pen.block(words, tokens, self._shared(2 * task + 1), self._script(task))

    def _shared(self, index: int) -> int:
        return _SHARED_NUMBERS + self._first_number + index

    def _script(self, index: int) -> Script:
        """Choose the script of a shared text: in a bilingual scenario they are of both, in turn."""
        language = self._users.language
        return ("en", "zh")[index % 2] if language == "mixed" else language


class MixSource:
    """Sessions of several kinds of users: each session number is of one kind, in proportion to the shares."""

    def __init__(self, mix: Sequence[Portion], pen: Pen) -> None:
        self._parts = [
            UserSource(portion.scenario, pen, part=part, label=f"{portion.scenario.name}.")
            for part, portion in enumerate(mix)
        ]
        shares = np.array([portion.share for portion in mix])
        self._bounds = np.cumsum(shares) / shares.sum()
        self._offsets = cache(lambda role: pen.streams(Role.MIX, role)[0].random())

    def sketch(self, role: Role, index: int) -> Sketch:
        """Sketch the session number `index` of `role`."""
        at = (self._offsets(role) + index * _GOLDEN) % 1.0
        part = min(int(np.searchsorted(self._bounds, at, side="right")), len(self._parts) - 1)
        return self._parts[part].sketch(role, index)


def _given(part: PartT | None) -> PartT:
    if part is None:
        raise ScenarioError("the session asks for a shared text that its scenario does not have")
    return part
