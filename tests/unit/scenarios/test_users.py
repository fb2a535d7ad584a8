"""What users have in common, and how they go back, are helped by tools, and leave."""

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.making import make_plan
from scenarios.model import Api, Scenario, parse_scenario
from scenarios.plan import Phase, Plan, Session
from scenarios.prompts import LEAD
from tests.support.bpe import prompt_tokenizer

TOKENIZER = prompt_tokenizer(2048)
BOTH = pytest.mark.parametrize("api", ["chat", "generate"])


def _scenario(**changes: Any) -> Scenario:
    data = {
        "schema_version": 1,
        "name": "mine",
        "sessions": {"counted": 40, "concurrency": 2, "ramp_s": 0},
        "turns": 3,
        "first_user_tokens": 12,
        "user_tokens": 9,
        "output_tokens": 6,
        "think_s": 20,
    }
    return parse_scenario({**data, **changes}, where="test")


def _counted(plan: Plan) -> list[Session]:
    return [session for session in plan.sessions if session.phase is Phase.COUNTED]


def _first_ids(session: Session) -> tuple[int, ...]:
    turn = session.turns[0]
    return tuple(TOKENIZER.ids(turn.text)) if turn.text is not None else turn.token_ids or ()


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@BOTH
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_documents_are_exact_prefixes(api: Api, seed: int) -> None:
    """Sessions with the same first document share its 50 tokens and no third word; others share nothing of it."""
    documents = {"count": 3, "tokens": 50, "per_session": 1}
    plan = make_plan(_scenario(documents=documents, turns=1), seed, TOKENIZER, api)
    firsts = [_first_ids(session) for session in plan.sessions]
    lead = TOKENIZER.count(LEAD) if api == "chat" else 0
    assert {len(first) for first in firsts} == {50 + 12}
    shared = Counter(_common(one, other) // 40 for one, other in combinations(firsts, 2))
    assert shared[0] > 0
    assert shared[1] > 0
    for one, other in combinations(firsts, 2):
        assert _common(one, other) <= lead + 4 or 50 + lead <= _common(one, other) <= 50 + lead + 4


@BOTH
def test_documents_of_every_turn_are_looked_up_anew(api: Api) -> None:
    """With `per_turn` every message has documents, at most as many as there are."""
    documents = {"count": 2, "tokens": 30, "per_turn": {"kind": "uniform", "min": 1, "max": 9}}
    for session in _counted(make_plan(_scenario(documents=documents), 1, TOKENIZER, api)):
        lengths = [TOKENIZER.count(t.text) if t.text is not None else len(t.token_ids or ()) for t in session.turns]
        assert set(lengths) <= {12 + 30, 12 + 60, 9 + 30, 9 + 60}


def test_popular_documents_come_more_often() -> None:
    """With zipf 1.5 the first of 50 is drawn in more than a third of the sessions; with 0, in about one of 50."""

    def share_of_the_commonest(zipf: float) -> float:
        documents = {"count": 50, "tokens": 20, "per_session": 1, "zipf": zipf}
        load = {"counted": 400, "concurrency": 1, "ramp_s": 0}
        plan = make_plan(_scenario(documents=documents, sessions=load, turns=1), 1, TOKENIZER, "generate")
        return Counter(_first_ids(session)[:20] for session in _counted(plan)).most_common(1)[0][1] / 400

    assert share_of_the_commonest(1.5) > 0.35
    assert share_of_the_commonest(0.0) < 0.06


@BOTH
def test_examples_are_shared_by_a_task(api: Api) -> None:
    """Two tasks give two beginnings of 8 x 5 tokens, in the first message alone."""
    examples = {"tasks": 2, "per_task": 8, "tokens": 5}
    sessions = _counted(make_plan(_scenario(examples=examples), 1, TOKENIZER, api))
    assert len({_first_ids(session)[:40] for session in sessions}) == 2
    assert {len(_first_ids(session)) for session in sessions} == {40 + 12}
    assert all(len(t.token_ids or ()) == 9 for s in sessions for t in s.turns[1:] if t.token_ids is not None)


def test_tools_answer_sooner_and_longer() -> None:
    """A share of the later turns has the tool's length and pause; the others are a person's."""
    tools = {"share": 0.25, "tokens": 70, "think_s": 0.5}
    turns = [t for s in _counted(make_plan(_scenario(tools=tools), 1, TOKENIZER, "generate")) for t in s.turns[1:]]
    kinds = Counter((len(turn.token_ids or ()), turn.think_s) for turn in turns)
    assert set(kinds) == {(70, 0.5), (9, 20)}
    assert kinds[70, 0.5] / len(turns) == pytest.approx(0.25, abs=0.15)


@BOTH
def test_regenerated_turns_say_the_same_again(api: Api) -> None:
    """With every later turn regenerated, all are the first message, from the beginning."""
    for session in _counted(make_plan(_scenario(branches={"regenerate": 1.0}), 1, TOKENIZER, api)):
        assert [turn.after for turn in session.turns] == [None, -1, -1]
        assert len({(turn.text, turn.token_ids) for turn in session.turns}) == 1


@BOTH
def test_edited_turns_keep_documents_and_go_back_one_step(api: Api) -> None:
    """An edited message has other words after the same documents, and goes on from what the edited one went on from."""
    changes = {
        "branches": {"edit": 0.5},
        "documents": {"count": 9, "tokens": 30, "per_session": 1},
        "turns": 12,
    }
    edited = 0
    for session in _counted(make_plan(_scenario(**changes), 1, TOKENIZER, api)):
        before = [index - 1 if turn.after is None else turn.after for index, turn in enumerate(session.turns)]
        for index, turn in enumerate(session.turns):
            if turn.after is None:
                continue
            edited += 1
            assert turn.after == before[index - 1]
            assert turn.text != session.turns[index - 1].text or api == "generate"
            length = TOKENIZER.count(turn.text) if turn.text is not None else len(turn.token_ids or ())
            assert length == (30 + 12 if turn.after == -1 else 9)
    assert edited > 100


def test_users_leave_while_a_reply_streams() -> None:
    """About a third leave after 4 tokens; whoever would read 9 of 6 tokens reads all."""
    leaving = _scenario(cancellation={"share": 0.3, "after_tokens": 4}, turns=10)
    left = [t.cancel_after_tokens for s in _counted(make_plan(leaving, 1, TOKENIZER, "generate")) for t in s.turns]
    assert set(left) == {None, 4}
    assert left.count(4) / len(left) == pytest.approx(0.3, abs=0.07)
    patient = _scenario(cancellation={"share": 1.0, "after_tokens": 9})
    assert {t.cancel_after_tokens for s in make_plan(patient, 1, TOKENIZER, "generate").sessions for t in s.turns} == {
        None
    }


def test_mixed_language_is_by_session() -> None:
    """A bilingual scenario has sessions of either language, each in one."""
    sessions = _counted(make_plan(_scenario(language="mixed"), 1, TOKENIZER))
    chinese = [[not (turn.text or "").isascii() for turn in session.turns] for session in sessions]
    assert {any(turns) for turns in chinese} == {True, False}
    assert all(turns[0] == turns[1] == turns[2] for turns in chinese)


def test_new_keys_leave_other_draws_alone() -> None:
    """Keys at their neutral values give the same sessions as without them."""
    plain = make_plan(_scenario(), 1, TOKENIZER)
    neutral = _scenario(language="en", branches=None, tools=None, cancellation=None)
    assert make_plan(neutral, 1, TOKENIZER) == plain
