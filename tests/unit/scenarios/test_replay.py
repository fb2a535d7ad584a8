"""Recorded sessions are played with their lengths, times and sharing, and with their words where they have some."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.blocks import BlockWriter
from scenarios.catalogue import load_scenario
from scenarios.errors import ScenarioError
from scenarios.making import make_plan
from scenarios.model import Api, Replay, fingerprint
from scenarios.plan import Phase, Plan, Session
from scenarios.trace import Clock, Message, Scope, Trace, TraceInfo, TraceRequest
from scenarios.trace_file import write_trace_file
from tests.support.bpe import prompt_tokenizer

TOKENIZER = prompt_tokenizer(4096)
FEW_IDS = prompt_tokenizer(258)
BLOCK = 16
INFO = TraceInfo("mooncake", Clock.TRACE, sessions_recorded=True, block_tokens=BLOCK, scope=Scope.GLOBAL)
BOTH = pytest.mark.parametrize("api", ["chat", "generate"])


def _request(session: str, turn: int, tokens: int, at_s: float | None, blocks: Sequence[int]) -> TraceRequest:
    return TraceRequest(session, turn, tokens, 5, at_s=at_s, block_ids=tuple(blocks))


A = (
    _request("a", 0, 40, 0.0, [1, 2, 30]),
    _request("a", 1, 60, 10.0, [1, 2, 3, 40]),  # goes on: 40 tokens, 5 of reply, 15 new
    _request("a", 2, 30, 30.0, [1, 50]),  # another prompt after the first block
)
B = (_request("b", 0, 50, 2.0, [1, 2, 3, 60]),)
C = (_request("c", 0, 20, 4.0, [9, 90]),)


def _scenario(
    folder: Path, *sessions: Sequence[TraceRequest], info: TraceInfo = INFO, load: object = None, **recording: Any
) -> Replay:
    requests = [request for session in sessions for request in session]
    write_trace_file(Trace(info, lambda: iter(requests)), folder / "trace.jsonl")
    data: dict[str, Any] = {"schema_version": 1, "name": "again", "replay": {"trace": "trace.jsonl", **recording}}
    data["sessions"] = load or {"warm_up_s": 0, "counted": len(sessions)}
    (folder / "again.yaml").write_text(yaml.safe_dump(data))
    scenario = load_scenario(folder / "again.yaml")
    assert isinstance(scenario, Replay)
    return scenario


def _ids(text: str | None, token_ids: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(TOKENIZER.ids(text)) if text is not None else token_ids or ()


def _prompts(session: Session) -> list[tuple[int, ...]]:
    """Build each prompt of a session as the load does; text goes on after a space, like that of one message."""
    asked: list[tuple[int, ...]] = []
    answered: list[tuple[int, ...]] = []
    for index, turn in enumerate(session.turns):
        before = index - 1 if turn.after is None else turn.after
        asked.append((answered[before] if before >= 0 else ()) + _ids(turn.text, turn.token_ids))
        answered.append(asked[index] + _ids(turn.reply_text, turn.reply_token_ids))
    return asked


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@BOTH
def test_lengths_and_times_are_the_recorded_ones(tmp_path: Path, api: Api) -> None:
    """Prompts have the recorded tokens, arrivals and turns the recorded times."""
    plan = make_plan(_scenario(tmp_path, A, B, C), 1, TOKENIZER, api)
    assert [session.start_s for session in plan.sessions] == [0, 2, 4]
    assert [[len(prompt) for prompt in _prompts(s)] for s in plan.sessions] == [[40, 60, 30], [50], [20]]
    assert [turn.at_s for turn in plan.sessions[0].turns] == [None, 10, 30]
    assert {turn.max_output_tokens for session in plan.sessions for turn in session.turns} == {5}
    assert (plan.concurrency, plan.rate_per_s) == (None, 0.5)


def test_a_turn_that_goes_on_continues_to_the_token(tmp_path: Path) -> None:
    """The second prompt holds the first, its reply and the rest; the third begins anew."""
    session = make_plan(_scenario(tmp_path, A), 1, TOKENIZER, "generate").sessions[0]
    assert [turn.after for turn in session.turns] == [None, None, -1]
    assert [len(turn.token_ids or ()) for turn in session.turns] == [40, 15, 30]
    assert [turn.reply_token_ids and len(turn.reply_token_ids) for turn in session.turns] == [5, None, None]


def test_equal_blocks_are_equal_tokens_and_no_more(tmp_path: Path) -> None:
    """Prompts share exactly the blocks that the trace says, across sessions and after a branch."""
    first, second, third = (
        _prompts(s) for s in make_plan(_scenario(tmp_path, A, B, C), 1, TOKENIZER, "generate").sessions
    )
    assert _common(first[1], second[0]) == 3 * BLOCK
    assert _common(first[2], second[0]) == BLOCK
    assert _common(first[1], third[0]) == 0


def test_text_shares_blocks_too(tmp_path: Path) -> None:
    """In words, two first messages share the words of their common blocks."""
    plan = make_plan(
        _scenario(tmp_path, B, (replace(B[0], session_id="d", block_ids=(1, 2, 7, 8)),)), 1, TOKENIZER, "chat"
    )
    one, other = (session.turns[0].text or "" for session in plan.sessions)
    assert _common(tuple(TOKENIZER.ids(one)), tuple(TOKENIZER.ids(other))) == 2 * BLOCK


def test_seeds_share_nothing(tmp_path: Path) -> None:
    """Another seed has other words for every block: no warm cache from the last repeat."""
    scenario = _scenario(tmp_path, A, B, C)
    one, other = (
        [p for s in make_plan(scenario, seed, TOKENIZER, "generate").sessions for p in _prompts(s)] for seed in (1, 2)
    )
    assert max(_common(a, b) for a in one for b in other) <= 1
    assert make_plan(scenario, 1, TOKENIZER, "generate") == make_plan(scenario, 1, TOKENIZER, "generate")


def test_local_blocks_are_a_session_s_own(tmp_path: Path) -> None:
    """Where block ids are numbered in each session anew, equal ids of two sessions share nothing."""
    local = replace(INFO, scope=Scope.LOCAL)
    first, second, _ = (
        _prompts(s) for s in make_plan(_scenario(tmp_path, A, B, C, info=local), 1, TOKENIZER, "generate").sessions
    )
    assert _common(first[1], second[0]) == 0
    assert _common(first[1], first[2]) == BLOCK


@settings(deadline=None, max_examples=40)
@given(
    chains=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=2, max_size=12, unique_by=tuple),
    seed=st.integers(0, 10_000),
    api=st.sampled_from(["chat", "generate"]),
)
def test_n_common_blocks_are_exactly_their_tokens(chains: list[list[int]], seed: int, api: Api) -> None:
    """Two prompts with N blocks in common have N x block tokens in common and part at the next token, in any tree."""
    # With few ids two blocks often draw the same first token, unless the writer sees to it that they do not.
    writer = BlockWriter(TOKENIZER if api == "chat" else FEW_IDS, seed, api, BLOCK)
    # An id names a block with all before it, as in recorded traces: two branches never meet again.
    keys = [[(0, *chain[: end + 1]) for end in range(len(chain))] for chain in chains]
    prompts = [writer.prompt(chain, BLOCK * len(chain)) for chain in keys]
    written = [_ids(writer.text(p), None) if api == "chat" else writer.token_ids(p) for p in prompts]
    for (one, a), (other, b) in combinations(zip(keys, written, strict=True), 2):
        blocks = next(
            (n for n, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other))
        )
        assert len(a) == BLOCK * len(one)
        assert _common(a, b) == BLOCK * blocks


def test_model_replies_leave_room_for_themselves(tmp_path: Path) -> None:
    """With `reply: model` the prompt is as long as recorded once the model has said its 5 tokens."""
    session = make_plan(_scenario(tmp_path, A, reply="model"), 1, TOKENIZER, "generate").sessions[0]
    assert [(len(t.token_ids or ()), t.reply_token_ids) for t in session.turns] == [(40, None), (15, None), (30, None)]


@pytest.mark.parametrize("reply", ["scripted", "model"])
def test_a_retry_is_sent_whole(tmp_path: Path, reply: str) -> None:
    """The same prompt again, a shorter one, and one that grew by less than the model says all begin anew."""
    again = (
        A[0],
        _request("a", 1, 40, 1.0, [1, 2, 30]),
        _request("a", 2, 36, 2.0, [1, 2, 31]),
        _request("a", 3, 39, 3.0, [1, 2, 32]),
    )
    session = make_plan(_scenario(tmp_path, again, reply=reply), 1, TOKENIZER, "generate").sessions[0]
    scripted = reply == "scripted"
    assert [turn.after for turn in session.turns] == [None, -1, -1, None if scripted else -1]
    assert [len(prompt) for prompt in _prompts(session)] == [40, 40, 36, 39]
    assert session.turns[0].token_ids == session.turns[1].token_ids


def test_speed_and_pauses(tmp_path: Path) -> None:
    """Twice the speed halves all times; longer gaps than `max_think_s` are cut first."""
    plan = make_plan(_scenario(tmp_path, A, B, speed=2, max_think_s=15), 1, TOKENIZER, "generate")
    assert [session.start_s for session in plan.sessions] == [0, 1]
    assert [turn.at_s for turn in plan.sessions[0].turns] == [None, 5, 12.5]


def test_recorded_pauses_are_preferred(tmp_path: Path) -> None:
    """A recorded pause after the reply is a pause; one that is not recorded is drawn."""
    thinking = (A[0], replace(A[1], think_s=4.0), replace(A[2], at_s=None))
    session = make_plan(
        _scenario(tmp_path, thinking, think_s=7, load={"warm_up_s": 0}), 1, TOKENIZER, "generate"
    ).sessions[0]
    assert [(turn.think_s, turn.at_s) for turn in session.turns] == [(0, None), (4, None), (7, None)]


def test_long_sessions_and_late_ones_are_left_out(tmp_path: Path) -> None:
    """`max_context_tokens` drops whole sessions, and `sessions` takes the earliest of the rest."""
    scenario = _scenario(tmp_path, A, B, C, max_context_tokens=55, sessions=1, load={"warm_up_s": 0, "counted": 1})
    assert [len(_prompts(s)[0]) for s in make_plan(scenario, 1, TOKENIZER, "generate").sessions] == [50]
    with pytest.raises(ScenarioError, match=r"holds no session within 9 tokens; raise `max_context_tokens`$"):
        make_plan(_scenario(tmp_path, A, B, C, max_context_tokens=9), 1, TOKENIZER, "generate")


def test_phases_follow_arrival(tmp_path: Path) -> None:
    """By default at most the first quarter warms up, and the last tenth of the rest keeps the load up."""
    many = [(_request(f"s{n}", 0, 20, float(n), [n, 500 + n]),) for n in range(101)]
    plan = make_plan(_scenario(tmp_path, *many, load={"warm_up_s": 20}), 1, TOKENIZER, "generate")
    phases = [session.phase for session in plan.sessions]
    assert phases[:92] == [Phase.WARMUP] * 20 + [Phase.COUNTED] * 72
    assert set(phases[92:]) == {Phase.FILLER}


SLOTS = {"concurrency": 2, "ramp_s": 4, "counted": 2}


@BOTH
def test_a_closed_replay_plays_again_in_other_words(tmp_path: Path, api: Api) -> None:
    """With slots the sessions come one after the other; when they run out they come again, and share nothing."""
    clocks = replace(INFO, clock=Clock.SESSION, scope=Scope.LOCAL)
    plan = make_plan(_scenario(tmp_path, A, B, C, info=clocks, load=SLOTS), 1, TOKENIZER, api)
    assert (plan.concurrency, len(plan.sessions)) == (2, 2 + 1 + 2 + 8)
    firsts = [_prompts(session)[0] for session in plan.sessions]
    assert max(_common(one, other) for one, other in combinations(firsts, 2)) <= 2


def test_a_trace_without_arrivals_needs_a_load(tmp_path: Path) -> None:
    """Each session on a clock of its own says nothing of arrivals, and the message says what to give."""
    scenario = _scenario(tmp_path, A, B, info=replace(INFO, clock=Clock.SESSION))
    with pytest.raises(ScenarioError) as caught:
        make_plan(scenario, 1, TOKENIZER, "generate")
    assert str(caught.value) == (
        f"scenario again: {tmp_path}/trace.jsonl does not say when its sessions arrived; give `sessions.concurrency` "
        "with `ramp_s`, or `arrivals`"
    )
    assert make_plan(scenario.opened(0.5), 1, TOKENIZER, "generate").rate_per_s == 0.5


CHAT = (
    TraceRequest(
        "talk", 0, None, None, 0.0, messages=(Message("system", "be kind"), Message("user", "hello there")),
        reply=Message("assistant", "good day"),
    ),
    TraceRequest(
        "talk", 1, None, 3, 9.0, messages=(Message("tool", "21 degrees"), Message("user", "and now")),
    ),
)  # fmt: skip


def test_a_chat_log_is_played_in_its_words(tmp_path: Path) -> None:
    """System, user and reply are those of the log; tool output comes with the user's next words."""
    info = TraceInfo("openai-chat", Clock.TRACE, sessions_recorded=True)
    scenario = _scenario(tmp_path, CHAT, info=info, load={"warm_up_s": 0, "counted": 1})
    session = make_plan(scenario, 1, TOKENIZER, "chat").sessions[0]
    assert session.system_text == "be kind"
    assert [turn.text for turn in session.turns] == ["hello there", "21 degrees\n\nand now"]
    assert [turn.reply_text for turn in session.turns] == ["good day", None]
    assert [turn.max_output_tokens for turn in session.turns] == [TOKENIZER.count("good day"), 3]
    as_ids = make_plan(scenario, 1, TOKENIZER, "generate").sessions[0]
    assert as_ids.system_token_ids == tuple(TOKENIZER.ids("be kind"))
    assert [turn.token_ids for turn in as_ids.turns] == [tuple(TOKENIZER.ids(t.text or "")) for t in session.turns]


def test_the_digest_of_the_trace_counts_and_not_its_place(tmp_path: Path) -> None:
    """The same trace elsewhere is the same load; another content is another, and is refused where a digest is given."""
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    here, there = _scenario(tmp_path / "x", A, B), _scenario(tmp_path / "y", A, B)
    assert here.replay.trace != there.replay.trace
    assert fingerprint(here) == fingerprint(there)
    other = _scenario(tmp_path / "y", A, C)
    assert fingerprint(other) != fingerprint(here)
    with pytest.raises(
        ScenarioError, match=r"is another one than its `sha256` says; restore it, or change the digest$"
    ):
        _scenario(tmp_path / "y", A, C, sha256=here.replay.sha256)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    """The message names the scenario's file and the trace."""
    (tmp_path / "again.yaml").write_text("{schema_version: 1, name: x, replay: {trace: none.jsonl}}")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "again.yaml")
    assert str(caught.value) == (
        f"{tmp_path}/again.yaml: cannot read the trace {tmp_path}/none.jsonl: No such file or directory; check the path"
    )


def _plan_bytes(plan: Plan) -> int:
    return sum(len(turn.token_ids or ()) for session in plan.sessions for turn in session.turns)


def test_long_conversations_are_not_written_again_and_again(tmp_path: Path) -> None:
    """A conversation of 50 turns that only grows is in the plan once, not 25 times."""
    turns = tuple(_request("a", n, 32 * (n + 1), float(n), range(2 * (n + 1))) for n in range(50))
    plan = make_plan(_scenario(tmp_path, turns, B), 1, TOKENIZER, "generate")
    assert _plan_bytes(plan) < 32 * 50 + 50
