"""Sessions as users have them, in the real load process: open arrivals, recorded times, branches, and leaving early."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import LoadError
from harness.load.job import ApiName, Stopped
from harness.load.runner import LoadResult
from scenarios.plan import Phase, Session, Turn
from tests.support.fixture_server import FixtureServer, Script, Seen
from tests.support.loads import chat_session, chat_turn, open_plan_of, plan_of, play
from tests.support.races import write_rival

MS = 10**6
S = 10**9
FREEZE_S = 2.0


@pytest.fixture
def server() -> Iterator[FixtureServer]:
    """A server that answers at once, until a test gives it another script."""
    with FixtureServer() as running:
        yield running


def rows(result: LoadResult) -> list[dict[str, Any]]:
    """Return the records as rows, in order of session and turn."""
    frame = result.records.sort_values(["session_id", "turn"])
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def frozen(seen: Seen) -> Script:
    """Stand still for two seconds when the first session comes."""
    return Script(freeze_s=FREEZE_S if seen.first_words == "s0" else 0.0)


def arriving(count: int, every_s: float) -> list[Session]:
    """Make sessions of one turn that arrive at a steady rate."""
    return [chat_session(f"s{n}", start_s=every_s * n) for n in range(count)]


def test_open_arrivals_show_a_frozen_server_in_every_session_that_was_due(
    server: FixtureServer, tmp_path: Path
) -> None:
    """No coordinated omission: the schedule goes on, and each session's TTFT counts from when it was due."""
    server.script = frozen
    result = play(server, open_plan_of(*arriving(20, 0.2)), tmp_path)
    thawed_ns = next(seen.unfrozen_ns for seen in server.seen if seen.first_words == "s0")
    started_ns, records = result.outcome.started_ns, {row["session_id"]: row for row in rows(result)}
    assert result.outcome.of(Phase.COUNTED).ok == 20
    inside = 0
    for number in range(20):
        row, due_ns = records[f"s{number}"], started_ns + number * 200 * MS
        assert row["scheduled_ns"] == due_ns
        assert row["sent_ns"] >= due_ns
        if due_ns < thawed_ns:
            inside += 1
            assert row["first_token_ns"] - row["scheduled_ns"] >= thawed_ns - due_ns
    assert inside >= FREEZE_S / 0.2


def test_a_naive_closed_loop_hides_the_same_freeze(server: FixtureServer, tmp_path: Path) -> None:
    """Taken from when a free slot got round to sending, only the one request that met the freeze is slow."""
    server.script = frozen
    result = play(server, plan_of(*arriving(20, 0.2), slots=1), tmp_path)
    naive_s = [(row["first_token_ns"] - row["sent_ns"]) / S for row in rows(result)]
    honest_s = [
        (row["first_token_ns"] - (result.outcome.started_ns + n * 200 * MS)) / S for n, row in by_number(result)
    ]
    assert sum(wait > 1.0 for wait in naive_s) == 1
    assert sum(wait > 1.0 for wait in honest_s) > 3


def by_number(result: LoadResult) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows with the number in their session's name."""
    return [(int(row["session_id"][1:]), row) for row in rows(result)]


def test_open_sessions_play_beside_each_other_without_end(server: FixtureServer, tmp_path: Path) -> None:
    """All 200 are running at once: nothing in the client limits them."""
    server.script = lambda _: Script(first_token_s=1.5)
    sessions = [chat_session(f"s{n}", start_s=0.002 * n) for n in range(200)]
    result = play(server, open_plan_of(*reversed(sessions)), tmp_path)
    assert result.outcome.of(Phase.COUNTED).ok == 200
    assert result.records["sent_ns"].max() < result.records["end_ns"].min()


def test_an_open_load_that_is_stopped_lets_nobody_in_any_more(server: FixtureServer, tmp_path: Path) -> None:
    """Sessions that were not due yet are counted as not played."""
    plan = open_plan_of(chat_session("a"), chat_session("b", 3, start_s=60.0))
    result = play(server, plan, tmp_path, limit_s=0.5)
    assert result.outcome.stopped is Stopped.LIMIT
    assert [seen.first_words for seen in server.seen] == ["a"]
    assert result.outcome.turns_not_played == 3


def test_recorded_turns_are_due_at_their_times_and_never_overlap(server: FixtureServer, tmp_path: Path) -> None:
    """A turn that is due while the reply before it runs is sent at its end, and waits from when it was due."""
    server.script = lambda seen: Script(first_token_s=0.5 if len(seen.body["messages"]) == 1 else 0.0)
    turns = tuple(replace(chat_turn(f"t{n}", think_s=9.0), at_s=at_s) for n, at_s in enumerate((0.0, 0.2, 0.9)))
    result = play(server, open_plan_of(Session("s", Phase.COUNTED, turns, start_s=0.1)), tmp_path)
    first, early, late = rows(result)
    began_ns = result.outcome.started_ns + 100 * MS
    assert [row["scheduled_ns"] - began_ns for row in (first, early, late)] == [0, 200 * MS, 900 * MS]
    assert early["sent_ns"] >= first["end_ns"] > early["scheduled_ns"]
    assert early["first_token_ns"] - early["scheduled_ns"] >= 300 * MS
    assert late["sent_ns"] >= late["scheduled_ns"] > early["end_ns"]


def test_how_late_requests_are_sent_leaves_out_those_that_waited_for_a_reply(
    server: FixtureServer, tmp_path: Path
) -> None:
    """A recorded turn that comes 400 ms too late, because the engine was slow, is not the client's fault."""
    server.script = lambda _: Script(first_token_s=0.5)
    turns = tuple(replace(chat_turn(f"t{n}"), at_s=at_s) for n, at_s in enumerate((0.0, 0.1)))
    result = play(server, open_plan_of(Session("s", Phase.COUNTED, turns)), tmp_path)
    early = rows(result)[1]
    assert early["sent_ns"] - early["scheduled_ns"] >= 400 * MS
    late_max_ms = result.outcome.client.late_max_ms
    assert late_max_ms is not None
    assert 0 <= late_max_ms < 400


def test_a_branch_goes_on_from_the_turn_it_names(server: FixtureServer, tmp_path: Path) -> None:
    """Edited messages and second answers: the history is that of the named turn with its reply, or the beginning."""
    turns = (
        chat_turn("a"),
        chat_turn("b"),
        replace(chat_turn("c"), after=0),
        replace(chat_turn("d"), after=-1),
        replace(chat_turn("e"), after=1),
        chat_turn("f"),
    )
    play(server, plan_of(Session("s", Phase.COUNTED, turns, system_text="sys")), tmp_path)
    said = "one two three"
    assert [[m["content"] for m in seen.body["messages"]] for seen in server.seen] == [
        ["sys", "a"],
        ["sys", "a", said, "b"],
        ["sys", "a", said, "c"],
        ["sys", "d"],
        ["sys", "a", said, "b", said, "e"],
        ["sys", "a", said, "b", said, "e", said, "f"],
    ]


def test_a_branch_of_ids(server: FixtureServer, tmp_path: Path) -> None:
    """The same for the generate API."""
    turns = [Turn(0.0, 3, token_ids=(number,), reply_token_ids=(70 + number,)) for number in (1, 2, 3)]
    turns[2] = replace(turns[2], after=0)
    session = Session("s", Phase.COUNTED, tuple(turns), system_token_ids=(9,))
    play(server, plan_of(session), tmp_path, api=ApiName.GENERATE)
    assert [seen.body["input_ids"] for seen in server.seen] == [[9, 1], [9, 1, 71, 2], [9, 1, 71, 3]]


def test_a_branch_of_nothing_is_refused(server: FixtureServer, tmp_path: Path) -> None:
    """One sentence says which turn of which session, and nothing is sent."""
    session = Session("s", Phase.COUNTED, (chat_turn("a"), replace(chat_turn("b"), after=4)))
    with pytest.raises(LoadError, match="session s, turn 1: `after` is 4, which is no earlier turn"):
        play(server, plan_of(session), tmp_path)
    assert server.seen == []


@pytest.mark.parametrize(
    ("api", "turn"),
    [
        (ApiName.CHAT, Turn(0.0, 99, cancel_after_tokens=2, text="a", reply_text="never")),
        (ApiName.GENERATE, Turn(0.0, 99, cancel_after_tokens=2, token_ids=(1,), reply_token_ids=(5,))),
    ],
)
def test_a_user_who_leaves_closes_the_connection_and_comes_back(
    server: FixtureServer, tmp_path: Path, api: ApiName, turn: Turn
) -> None:
    """After two deltas the engine loses its client; what was read is the history of the next turn."""
    words = tuple(f"w{n} " for n in range(50))
    server.script = lambda _: Script(tokens=words, gap_s=0.1)
    following = replace(turn, text=turn.text and "b", token_ids=turn.token_ids and (2,))
    result = play(server, plan_of(Session("s", Phase.COUNTED, (turn, following))), tmp_path, api=api)
    first, second = rows(result)
    assert result.outcome.stopped is Stopped.COMPLETE
    assert (result.outcome.of(Phase.COUNTED).cancelled, result.outcome.of(Phase.COUNTED).sent) == (2, 2)
    assert first["status"] == "cancelled"
    assert first["first_token_ns"] <= first["last_token_ns"] == first["end_ns"]
    assert second["scheduled_ns"] == first["end_ns"]
    assert server.seen[0].client_left
    read = first["chunks"]
    assert 2 <= read < len(words)
    if api is ApiName.CHAT:
        assert [m["content"] for m in server.seen[1].body["messages"]] == ["a", "".join(words[:read]), "b"]
    else:
        assert server.seen[1].body["input_ids"] == [1, *range(900, 900 + read), 2]


def test_a_reply_that_ends_before_the_user_would_leave_is_whole(server: FixtureServer, tmp_path: Path) -> None:
    """Leaving later than the end is not leaving; the scripted reply joins."""
    turn = replace(chat_turn("a", reply="scripted"), cancel_after_tokens=99)
    result = play(server, plan_of(Session("s", Phase.COUNTED, (turn, chat_turn("b")))), tmp_path)
    assert result.outcome.of(Phase.COUNTED).ok == 2
    assert [m["content"] for m in server.seen[1].body["messages"]] == ["a", "scripted", "b"]


def test_each_session_carries_its_id_for_routers(server: FixtureServer, tmp_path: Path) -> None:
    """Every turn of a session has the same key, another session another one, beside the fixed headers."""
    plan = plan_of(chat_session("a", 2), chat_session("b", 2))
    play(server, plan, tmp_path, session_header="X-SMG-Routing-Key", headers={"X-Fixed": "1"})
    keys = [(seen.headers["x-smg-routing-key"], seen.headers["x-fixed"], seen.first_words) for seen in server.seen]
    assert sorted(keys) == [("a", "1", "a")] * 2 + [("b", "1", "b")] * 2


def test_an_id_that_no_header_can_carry_is_refused(server: FixtureServer, tmp_path: Path) -> None:
    """Before anything is sent."""
    with pytest.raises(LoadError, match="its id cannot stand in the header X-Session"):
        play(server, plan_of(chat_session("ä\n")), tmp_path, session_header="X-Session")
    assert server.seen == []


def test_a_service_level_that_is_missed_for_good_ends_the_load(server: FixtureServer, tmp_path: Path) -> None:
    """Requests that still wait are enough to know: nobody waits for their end."""
    server.script = lambda _: Script(first_token_s=60)
    plan = open_plan_of(*arriving(30, 0.1))
    result = play(server, plan, tmp_path, slo_ttft_s=0.2)
    assert result.outcome.stopped is Stopped.SLO_MISSED
    assert result.outcome.of(Phase.COUNTED).ok == 0
    assert result.outcome.ended_ns - result.outcome.started_ns < 15 * S


def test_a_load_that_is_surely_worse_than_its_rival_is_ended(server: FixtureServer, tmp_path: Path) -> None:
    """Its rival took a millisecond for each request; how much worse it was is in the outcome, from any process."""
    server.script = lambda _: Script(first_token_s=0.02)
    plan = plan_of(*(chat_session(f"s{n}", 4) for n in range(100)), slots=4)
    rival = write_rival(np.full((100, 4), 0.001), tmp_path / "rival.parquet")
    result = play(server, plan, tmp_path, rival=rival, processes=2)
    assert result.outcome.stopped is Stopped.SURELY_WORSE
    assert result.outcome.turns_not_played > 0
    assert result.outcome.lost is not None
    assert (result.outcome.lost.rival, result.outcome.lost.change_low > 10) == (3, True)


def test_a_load_that_only_gets_slower_is_ended(server: FixtureServer, tmp_path: Path) -> None:
    """A queue that grows from request to request is seen while it grows."""
    server.script = lambda seen: Script(first_token_s=0.02 * 1.006 ** int(seen.first_words[1:]))
    plan = open_plan_of(*arriving(1200, 0.012))
    result = play(server, plan, tmp_path, diverging_least_s=1.0)
    assert result.outcome.stopped is Stopped.DIVERGED
    assert result.outcome.turns_not_played > 0
