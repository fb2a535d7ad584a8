"""Plans are reproducible, share only what the scenario shares, and do not change with their size."""

import hashlib
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.casting import FILLERS_PER_SLOT
from scenarios.catalogue import list_scenarios, load_scenario
from scenarios.errors import ScenarioError
from scenarios.making import make_plan
from scenarios.model import GENERATOR_VERSION, Api, Scenario, parse_scenario
from scenarios.plan import Phase, Plan, Session, write_plan
from tests.support.bpe import byte_level, prompt_tokenizer

RAW = byte_level()
TOKENIZER = prompt_tokenizer()


def _scenario(**changes: Any) -> Scenario:
    data = {
        "schema_version": 1,
        "name": "mine",
        "sessions": {"counted": 5, "concurrency": 3, "ramp_s": 6},
        "turns": {"kind": "uniform", "min": 2, "max": 5},
        "system_prompts": {"tokens": 40},
        "first_user_tokens": {"kind": "uniform", "min": 20, "max": 30},
        "user_tokens": {"kind": "lognormal", "median": 15, "sigma": 0.5},
        "output_tokens": {"kind": "choice", "values": [4, 8]},
        "think_s": {"kind": "uniform", "min": 0.1, "max": 0.9},
        "reply": "scripted",
    }
    return parse_scenario({**data, **changes}, where="test")


def _phase(plan: Plan, phase: Phase) -> list[Session]:
    return [session for session in plan.sessions if session.phase is phase]


def _ids(session: Session) -> tuple[int, ...]:
    """Join the session's tokens, in order."""
    parts = [(session.system_text, session.system_token_ids)]
    for turn in session.turns:
        parts += [(turn.text, turn.token_ids), (turn.reply_text, turn.reply_token_ids)]
    joined: list[int] = []
    for text, ids in parts:
        joined += RAW.encode(text).ids if text is not None else ids or ()
    return tuple(joined)


def _shared_prefix(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _bytes(plan: Plan, folder: Path) -> bytes:
    write_plan(plan, folder / "plan.jsonl")
    return (folder / "plan.jsonl").read_bytes()


@pytest.mark.parametrize("api", ["chat", "generate"])
def test_same_seed_same_bytes(tmp_path: Path, api: Api) -> None:
    """A plan can be made again, to the byte."""
    plans = [make_plan(_scenario(), 7, TOKENIZER, api) for _ in range(2)]
    assert _bytes(plans[0], tmp_path) == _bytes(plans[1], tmp_path)


def test_generator_is_pinned(tmp_path: Path) -> None:
    """If this fails, the same seed gives other sessions than before: raise GENERATOR_VERSION with the digest."""
    digest = hashlib.sha256(_bytes(make_plan(_scenario(), 7, prompt_tokenizer(258)), tmp_path)).hexdigest()
    assert (GENERATOR_VERSION, digest[:16]) == (1, "612fad6eb18c62a8")


def test_phases_and_numbers() -> None:
    """One opening session a slot, whole ones for half of them, the counted ones, and enough to go on with."""
    plan = make_plan(_scenario(), 1, TOKENIZER)
    assert [s.phase for s in plan.sessions] == (
        [Phase.WARMUP] * (3 + 2) + [Phase.COUNTED] * 5 + [Phase.FILLER] * 3 * FILLERS_PER_SLOT
    )
    assert (plan.scenario, plan.seed, plan.concurrency) == ("mine", 1, 3)
    assert len({s.session_id for s in plan.sessions}) == len(plan.sessions)
    assert plan.sessions[5].session_id == "counted-1-0"


def test_arrivals_ramp() -> None:
    """The slots' first sessions arrive evenly over the ramp; later ones start when a slot is free."""
    plan = make_plan(_scenario(sessions={"counted": 2, "concurrency": 10, "ramp_s": 20}), 1, TOKENIZER)
    starts = [s.start_s for s in _phase(plan, Phase.WARMUP)[:10]]
    assert {s.start_s for s in _phase(plan, Phase.WARMUP)[10:]} == {0.0}
    assert [int(start // 2) for start in starts] == list(range(10))
    assert {s.start_s for s in _phase(plan, Phase.COUNTED)} == {0.0}


def test_warmup_desynchronises_the_slots() -> None:
    """Opening sessions have every length from one turn to a full session; all others are full."""
    sessions = {"counted": 60, "concurrency": 60, "ramp_s": 0}
    plan = make_plan(_scenario(turns=6, sessions=sessions), 1, TOKENIZER)
    turns = [len(s.turns) for s in _phase(plan, Phase.WARMUP)[:60]]
    assert {len(s.turns) for s in _phase(plan, Phase.WARMUP)[60:]} == {6}
    assert set(turns) == {1, 2, 3, 4, 5, 6}
    assert max(turns.count(n) for n in set(turns)) < 20
    assert {len(s.turns) for s in _phase(plan, Phase.COUNTED)} == {6}


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**40), api=st.sampled_from(["chat", "generate"]))
def test_lengths_are_as_asked(seed: int, api: Api) -> None:
    """Every part of every session has a length that its distribution can give, in either form."""
    for session in make_plan(_scenario(), seed, TOKENIZER, api).sessions:
        assert len(_ids(Session("x", Phase.COUNTED, (), 0, session.system_text, session.system_token_ids))) == 40
        assert 1 <= len(session.turns) <= 5
        for index, turn in enumerate(session.turns):
            length = len(turn.token_ids) if turn.token_ids else TOKENIZER.count(turn.text or "")
            reply = len(turn.reply_token_ids) if turn.reply_token_ids else TOKENIZER.count(turn.reply_text or "")
            assert turn.max_output_tokens == reply
            assert reply in (4, 8)
            assert (20 <= length <= 30) if index == 0 else length >= 1
            assert (turn.think_s == 0) if index == 0 else (0.1 <= turn.think_s <= 0.9)
            assert (turn.text is None) == (api == "generate") == (turn.token_ids is not None)


def test_both_forms_have_the_same_lengths() -> None:
    """Text and token ids are two forms of the same session: turns, lengths and think times are equal."""
    text, ids = (make_plan(_scenario(), 3, TOKENIZER, api) for api in ("chat", "generate"))
    for one, other in zip(text.sessions, ids.sessions, strict=True):
        assert len(_ids(one)) == len(_ids(other))
        assert [t.think_s for t in one.turns] == [t.think_s for t in other.turns]


def test_the_scenario_says_the_form() -> None:
    """Without an override the scenario's own api is used."""
    assert make_plan(_scenario(api="generate"), 1, TOKENIZER).sessions[0].turns[0].text is None


def test_model_replies_are_left_out() -> None:
    """With `reply: model` nothing is scripted."""
    turns = [t for s in make_plan(_scenario(reply="model"), 1, TOKENIZER).sessions for t in s.turns]
    assert {(t.reply_text, t.reply_token_ids) for t in turns} == {(None, None)}


@pytest.mark.parametrize("api", ["chat", "generate"])
def test_only_the_system_prompt_is_shared(api: Api) -> None:
    """Any two sessions of a plan have the system prompt in common, and part within two words of it."""
    plan = make_plan(_scenario(), 11, TOKENIZER, api)
    ids = [_ids(session) for session in plan.sessions]
    shared = [_shared_prefix(one, other) for one, other in combinations(ids, 2)]
    assert min(shared) >= 40
    assert max(shared) <= 44


@pytest.mark.parametrize("system_prompts", [None, {"tokens": 40, "shared": False}])
def test_nothing_is_shared_without_shared_prompts(system_prompts: object) -> None:
    """Without common system prompts, sessions part within their first words."""
    plan = make_plan(_scenario(system_prompts=system_prompts), 11, TOKENIZER)
    ids = [_ids(session) for session in plan.sessions]
    assert max(_shared_prefix(one, other) for one, other in combinations(ids, 2)) <= 4


@pytest.mark.parametrize("api", ["chat", "generate"])
def test_seeds_share_nothing(api: Api) -> None:
    """Another seed has other sessions and another system prompt: the last repeat leaves no warm cache."""
    one, other = (make_plan(_scenario(), seed, TOKENIZER, api) for seed in (1, 2))
    for first in one.sessions:
        assert max(_shared_prefix(_ids(first), _ids(second)) for second in other.sessions) <= 4


def test_seeds_have_lengths_of_their_own() -> None:
    """Another seed draws other turns, lengths and think times, not only other words."""
    shapes = [
        [[(t.think_s, t.max_output_tokens) for t in s.turns] for s in make_plan(_scenario(), seed, TOKENIZER).sessions]
        for seed in (1, 2)
    ]
    assert shapes[0] != shapes[1]


def test_several_shared_system_prompts() -> None:
    """Sessions draw theirs from as many as the scenario says."""
    sessions = {"counted": 40, "concurrency": 3, "ramp_s": 0}
    plan = make_plan(_scenario(system_prompts={"tokens": 40, "count": 4}, sessions=sessions), 1, TOKENIZER)
    systems = [s.system_text for s in plan.sessions]
    assert len(set(systems)) == 4
    assert max(systems.count(text) for text in set(systems)) < len(systems) / 2


def test_more_sessions_change_no_earlier_ones() -> None:
    """A longer plan, or one with more slots, holds the sessions of the shorter one."""
    small = make_plan(_scenario(), 5, TOKENIZER)
    large = make_plan(_scenario().scaled(counted_sessions=9, concurrency=4), 5, TOKENIZER)
    assert _phase(large, Phase.COUNTED)[:5] == _phase(small, Phase.COUNTED)
    assert _phase(large, Phase.FILLER)[:12] == _phase(small, Phase.FILLER)
    assert [s.turns for s in _phase(large, Phase.WARMUP)[:3]] == [s.turns for s in _phase(small, Phase.WARMUP)[:3]]


def test_negative_seed_is_refused() -> None:
    """A seed below 0 has no stream."""
    with pytest.raises(ScenarioError, match=r"^the seed is -1; give one of 0 or more$"):
        make_plan(_scenario(), -1, TOKENIZER)


@pytest.mark.parametrize("name", list_scenarios())
def test_built_in_scenario_makes_a_plan(name: str) -> None:
    """Every built-in scenario can be played, and no prompt passes the context of the models it is meant for."""
    scenario = load_scenario(name).scaled(counted_sessions=6)
    scenario = scenario if scenario.is_open else scenario.scaled(concurrency=2)
    plan = make_plan(scenario, 1, TOKENIZER, "generate")
    longest = max(len(_ids(session)) for session in plan.sessions)
    assert len(_phase(plan, Phase.COUNTED)) == 6
    assert longest < (8192 if name.startswith("cpu") else 40960)


def test_think_times_are_spread() -> None:
    """Think times are drawn anew for each turn."""
    plan = make_plan(load_scenario("cpu-chat"), 1, TOKENIZER, "generate")
    thinks = [t.think_s for s in plan.sessions for t in s.turns[1:]]
    assert np.mean(thinks) == pytest.approx(0.6, abs=0.05)
