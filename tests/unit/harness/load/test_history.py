"""Histories: the same bytes as if all were encoded again each turn, whatever branches there are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.load.api import Api, ChatApi, GenerateApi
from harness.load.reply import Reply
from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Session, Turn
from tests.support.loads import plan_of

TEXTS = st.text(max_size=20)
IDS = st.lists(st.integers(0, 200_000), max_size=6).map(tuple)


@st.composite
def conversations(draw: st.DrawFn) -> Session:
    """Make a session of both forms at once, with branches, scripted replies and users who leave."""
    turns = []
    for number in range(draw(st.integers(1, 6))):
        turn = Turn(
            think_s=0.0,
            max_output_tokens=draw(st.integers(1, 99)),
            after=draw(st.none() | st.integers(-1, number - 1)),
            cancel_after_tokens=draw(st.none() | st.just(1)),
            text=draw(TEXTS),
            token_ids=draw(IDS),
            reply_text=draw(st.none() | TEXTS),
            reply_token_ids=draw(st.none() | IDS),
        )
        turns.append(turn)
    system_text, system_ids = draw(st.none() | TEXTS), draw(st.none() | IDS)
    return Session("s", Phase.COUNTED, tuple(turns), system_text=system_text, system_token_ids=system_ids)


def real_reply(number: int) -> Reply:
    """Make what the model says in turn `number`."""
    reply = Reply()
    reply.text, reply.token_ids = f"räply {number}", [900, number]
    return reply


def bodies(api: Api, session: Session) -> list[bytes]:
    """Play a session without an engine; a turn that may be left is left."""
    history, found = api.history(session), []
    for number, turn in enumerate(session.turns):
        found.append(history.ask(turn))
        history.join(turn, real_reply(number), whole=turn.cancel_after_tokens is None)
    return found


def naive(session: Session, opening: list[Any], asked: list[list[Any]], replied: list[list[Any]]) -> list[list[Any]]:
    """Build each turn's history anew."""
    ends: dict[int, list[Any]] = {-1: opening}
    found = []
    for number, turn in enumerate(session.turns):
        so_far = ends[number - 1 if turn.after is None else turn.after] + asked[number]
        found.append(so_far)
        ends[number] = so_far + replied[number]
    return found


@given(conversations())
def test_chat_bodies_are_those_of_json_dumps(session: Session) -> None:
    """Encoded once and joined, or encoded anew each turn: the same bytes."""
    opening = [] if session.system_text is None else [{"role": "system", "content": session.system_text}]
    asked = [[{"role": "user", "content": turn.text}] for turn in session.turns]
    said = [
        turn.reply_text if turn.reply_text is not None and turn.cancel_after_tokens is None else real_reply(number).text
        for number, turn in enumerate(session.turns)
    ]
    replied = [[{"role": "assistant", "content": text}] for text in said]
    options = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_cached_tokens_details": True,
        "temperature": 0,
        "ignore_eos": True,
    }
    expected = [
        json.dumps({**options, "max_completion_tokens": turn.max_output_tokens, "messages": messages}).encode()
        for turn, messages in zip(session.turns, naive(session, list(opening), asked, replied), strict=True)
    ]
    assert bodies(ChatApi("m"), session) == expected


@given(conversations())
def test_generate_bodies_are_those_of_json_dumps(session: Session) -> None:
    """The same for ids, also where a system prompt, a turn or a reply has none."""
    scripted = [
        turn.reply_token_ids if turn.reply_token_ids is not None and turn.cancel_after_tokens is None else (900, number)
        for number, turn in enumerate(session.turns)
    ]
    asked = [list(turn.token_ids or ()) for turn in session.turns]
    histories = naive(session, list(session.system_token_ids or ()), asked, [list(ids) for ids in scripted])
    expected = [
        json.dumps(
            {
                "input_ids": ids,
                "sampling_params": {
                    "max_new_tokens": turn.max_output_tokens,
                    "temperature": 0,
                    "ignore_eos": True,
                },
                "stream": True,
            }
        ).encode()
        for turn, ids in zip(session.turns, histories, strict=True)
    ]
    assert bodies(GenerateApi(), session) == expected


TURN = Turn(think_s=0.0, max_output_tokens=1, text="hi", token_ids=(1,))


@pytest.mark.parametrize("api", [ChatApi("m"), GenerateApi()])
@pytest.mark.parametrize(
    ("second", "message"),
    [
        (replace(TURN, after=1), "session s, turn 1: `after` is 1, which is no earlier turn"),
        (replace(TURN, after=-2), "session s, turn 1: `after` is -2, which is no earlier turn"),
        (replace(TURN, cancel_after_tokens=0), "session s, turn 1: `cancel_after_tokens` is 0"),
    ],
)
def test_a_turn_that_cannot_be_played_is_refused(api: Api, second: Turn, message: str) -> None:
    """The plan check names session and turn, before anything is sent."""
    with pytest.raises(ScenarioError, match=message):
        api.check(plan_of(Session("s", Phase.COUNTED, (TURN, second))))


@pytest.mark.parametrize("api", [ChatApi("m"), GenerateApi()])
def test_earlier_turns_and_the_beginning_may_be_continued(api: Api) -> None:
    """Every earlier turn has an end to go on from."""
    turns = (TURN, replace(TURN, after=-1), replace(TURN, after=0, cancel_after_tokens=1))
    api.check(plan_of(Session("s", Phase.COUNTED, turns)))
