"""The shape of a session: its turns, lengths and pauses, before any word of it is written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.plan import Session
from scenarios.prompts import Script
from scenarios.users import Documents, Users

NOMINAL_TTFT_S = 0.5
NOMINAL_TOKEN_S = 0.02
"""A reply is taken to begin after half a second and to go on at 50 tokens a second, wherever the length of a session
has to be known before any engine has played it. Pauses are most of that length, so it need not be exact."""


BEGINNING = -1
"""What `after` says of a turn that continues nothing."""


@dataclass(frozen=True, slots=True)
class TurnShape:
    """One request: see `scenarios.plan.Turn`."""

    user_tokens: int
    output_tokens: int
    think_s: float
    documents: tuple[int, ...] = ()
    """Numbers of the documents that stand before the question."""
    after: int | None = None
    repeats: bool = False
    """The message of the turn before, word for word."""
    cancel_after_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SessionShape:
    """One session."""

    turns: tuple[TurnShape, ...]
    script: Script
    arrival_share: float = 0.0
    """Where in its slot's part of the ramp the session arrives, from 0 to 1."""
    system_prompt: int | None = None
    """Number of the shared system prompt."""
    system_tokens: int = 0
    """Length of a system prompt of its own."""
    task: int | None = None
    """Number of the task whose examples come first."""

    @property
    def nominal_s(self) -> float:
        """Return about how long the session lasts."""
        return sum(turn.think_s + _nominal_reply_s(turn.output_tokens, turn.cancel_after_tokens) for turn in self.turns)


def nominal_session_s(session: Session) -> float:
    """Return about how long a planned session lasts from its start."""
    end_s = 0.0
    for turn in session.turns:
        begin_s = end_s + turn.think_s if turn.at_s is None else max(end_s, turn.at_s)
        end_s = begin_s + _nominal_reply_s(turn.max_output_tokens, turn.cancel_after_tokens)
    return end_s


def _nominal_reply_s(tokens: int, cancel_after_tokens: int | None) -> float:
    return NOMINAL_TTFT_S + min(tokens, cancel_after_tokens or tokens) * NOMINAL_TOKEN_S


def draw_shape(users: Users, rng: np.random.Generator, *, opening: bool = False) -> SessionShape:
    """Draw one session of `users`; an `opening` one has a random number of its turns.

    What a scenario leaves out draws nothing, so that new keys leave the sessions of older scenarios as they were.
    """
    count, arrival_share = users.turns.draw_whole(rng), 0.0
    if opening:
        # Sessions of random lengths desynchronise the slots: each is as if it had been met in mid-life.
        count = int(rng.integers(1, count, endpoint=True))
        arrival_share = rng.random()
    prompts = users.system_prompts
    system_prompt = int(rng.integers(prompts.count)) if prompts and prompts.shared else None
    system_tokens = prompts.tokens.draw_whole(rng) if prompts and not prompts.shared else 0
    task = int(rng.integers(users.examples.tasks)) if users.examples else None
    script: Script = ("en", "zh")[rng.integers(2)] if users.language == "mixed" else users.language
    turns: list[TurnShape] = []
    for _ in range(count):
        turns.append(_draw_turn(users, rng, turns))
    return SessionShape(tuple(turns), script, arrival_share, system_prompt, system_tokens, task)


def _draw_turn(users: Users, rng: np.random.Generator, earlier: list[TurnShape]) -> TurnShape:
    """Draw the turn that follows the `earlier` ones."""
    if users.branches is not None and earlier:
        chance = rng.random()
        if chance < users.branches.regenerate + users.branches.edit:
            return _branch(users, rng, earlier, repeats=chance < users.branches.regenerate)
    tool = users.tools if users.tools is not None and earlier and rng.random() < users.tools.share else None
    lengths = users.first_user_tokens if not earlier else tool.tokens if tool else users.user_tokens
    documents = () if users.documents is None else _draw_documents(users.documents, rng, first=not earlier)
    user_tokens = lengths.draw_whole(rng)
    output_tokens = users.output_tokens.draw_whole(rng)
    think_s = round((tool or users).think_s.draw(rng), 3) if earlier else 0.0
    return TurnShape(user_tokens, output_tokens, think_s, documents, None, False, _cancelled(users, rng, output_tokens))


def _branch(users: Users, rng: np.random.Generator, earlier: list[TurnShape], *, repeats: bool) -> TurnShape:
    """Draw a turn in the place of the last of the `earlier` ones, about the same documents."""
    last = earlier[-1]
    after = len(earlier) - 2 if last.after is None else last.after
    lengths = users.first_user_tokens if after == BEGINNING else users.user_tokens
    user_tokens = last.user_tokens if repeats else lengths.draw_whole(rng)
    output_tokens = users.output_tokens.draw_whole(rng)
    think_s = round(users.think_s.draw(rng), 3)
    cancelled = _cancelled(users, rng, output_tokens)
    return TurnShape(user_tokens, output_tokens, think_s, last.documents, after, repeats, cancelled)


def _draw_documents(documents: Documents, rng: np.random.Generator, *, first: bool) -> tuple[int, ...]:
    number = documents.per_turn or (documents.per_session if first else None)
    if number is None:
        return ()
    weights = np.arange(1, documents.count + 1, dtype=np.float64) ** -documents.zipf
    size = min(number.draw_whole(rng), documents.count)
    drawn = rng.choice(documents.count, size=size, replace=False, p=weights / weights.sum())
    return tuple(int(document) for document in drawn)


def _cancelled(users: Users, rng: np.random.Generator, output_tokens: int) -> int | None:
    if users.cancellation is None or rng.random() >= users.cancellation.share:
        return None
    after = users.cancellation.after_tokens.draw_whole(rng)
    return after if after < output_tokens else None
