"""From a scenario and a seed to the very words that are played.

Every session has random streams of its own, so more sessions or another concurrency leave the others as they
were, and its lengths do not depend on the tokenizer or on the form of its prompts.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np

from scenarios.errors import ScenarioError
from scenarios.model import Api, Scenario
from scenarios.plan import Phase, Plan, Session, Turn
from scenarios.prompts import PromptWriter
from scenarios.tokenizer import PromptTokenizer

FILLERS_PER_SLOT = 4
"""Sessions to go on with while the last counted ones end: enough for a slot that is four times quicker."""


@dataclass(frozen=True, slots=True)
class _Message:
    """Words in one of their two forms."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None


SLOTS_PER_SETTLING_SESSION = 2
"""After its opening session a slot plays on; so many slots share one whole session more before anything is counted.
Only then are the caches as full as they stay, and what is counted earlier would be served more easily than the rest."""


class _Kind(enum.IntEnum):
    """What a stream of random numbers is for; the values are part of the key of the streams, so they stay."""

    OPENING = 0
    COUNTED = 1
    FILLER = 2
    SYSTEM_PROMPT = 3
    SETTLING = 4


_PHASES = {
    _Kind.OPENING: Phase.WARMUP,
    _Kind.SETTLING: Phase.WARMUP,
    _Kind.COUNTED: Phase.COUNTED,
    _Kind.FILLER: Phase.FILLER,
}


def make_plan(scenario: Scenario, seed: int, tokenizer: PromptTokenizer, api: Api | None = None) -> Plan:
    """Make the sessions of `scenario` for `seed`; equal arguments give equal plans, another seed other words.

    `api` overrides the scenario's. Raise ScenarioError for a negative seed or a tokenizer without exact texts.
    """
    if seed < 0:
        raise ScenarioError(f"the seed is {seed}; give one of 0 or more")
    maker = _SessionMaker(scenario, seed, tokenizer, api or scenario.api)
    slots, counted = scenario.sessions.concurrency, scenario.sessions.counted
    numbers = {
        _Kind.OPENING: slots,
        _Kind.SETTLING: math.ceil(slots / SLOTS_PER_SETTLING_SESSION),
        _Kind.COUNTED: counted,
        _Kind.FILLER: FILLERS_PER_SLOT * slots,
    }
    sessions = tuple(maker.session(kind, index) for kind, count in numbers.items() for index in range(count))
    return Plan(scenario.name, seed, slots, sessions)


class _SessionMaker:
    def __init__(self, scenario: Scenario, seed: int, tokenizer: PromptTokenizer, api: Api) -> None:
        self._scenario = scenario
        self._seed = seed
        self._writer = PromptWriter(tokenizer, seed)
        self._api = api
        self._shared_prompts = self._make_shared_prompts()

    def session(self, kind: _Kind, index: int) -> Session:
        """Make the session number `index` of `kind`."""
        number = index * len(_Kind) + kind
        shape, words = self._streams(kind, index)
        count, start_s = self._scenario.turns.draw_whole(shape), 0.0
        if kind is _Kind.OPENING:
            # Sessions of random lengths desynchronise the slots: each is as if it had been met in mid-life.
            count = int(shape.integers(1, count, endpoint=True))
            load = self._scenario.sessions
            start_s = round(load.ramp_s * (index + shape.random()) / load.concurrency, 3)
        system = self._system_prompt(shape, words, number)
        return Session(
            session_id=f"{kind.name.lower()}-{self._seed}-{index}",
            phase=_PHASES[kind],
            turns=tuple(self._turn(turn, number, shape, words) for turn in range(count)),
            start_s=start_s,
            system_text=system.text,
            system_token_ids=system.token_ids,
        )

    def _turn(self, turn: int, number: int, shape: np.random.Generator, words: np.random.Generator) -> Turn:
        scenario = self._scenario
        lengths = scenario.user_tokens if turn else scenario.first_user_tokens
        message = self._message(words, lengths.draw_whole(shape), None if turn else number)
        output_tokens = scenario.output_tokens.draw_whole(shape)
        reply = self._message(words, output_tokens) if scenario.reply == "scripted" else _Message()
        return Turn(
            think_s=round(scenario.think_s.draw(shape), 3) if turn else 0.0,
            max_output_tokens=output_tokens,
            text=message.text,
            token_ids=message.token_ids,
            reply_text=reply.text,
            reply_token_ids=reply.token_ids,
        )

    def _system_prompt(self, shape: np.random.Generator, words: np.random.Generator, number: int) -> _Message:
        prompts = self._scenario.system_prompts
        if prompts is None:
            return _Message()
        if prompts.shared:
            return self._shared_prompts[shape.integers(prompts.count)]
        return self._message(words, prompts.tokens.draw_whole(shape), number)

    def _make_shared_prompts(self) -> list[_Message]:
        prompts = self._scenario.system_prompts
        if prompts is None or not prompts.shared:
            return []
        streams = (self._streams(_Kind.SYSTEM_PROMPT, index) for index in range(prompts.count))
        return [
            self._message(words, prompts.tokens.draw_whole(shape), number)
            for number, (shape, words) in enumerate(streams)
        ]

    def _message(self, words: np.random.Generator, tokens: int, number: int | None = None) -> _Message:
        if self._api == "generate":
            return _Message(token_ids=self._writer.token_ids(words, tokens, number))
        return _Message(text=self._writer.text(words, tokens, number))

    def _streams(self, *key: int) -> tuple[np.random.Generator, np.random.Generator]:
        """Return one stream for lengths and times and one for words, both of this key alone."""
        shape, words = np.random.SeedSequence(self._seed, spawn_key=key).spawn(2)
        return np.random.default_rng(shape), np.random.default_rng(words)
