"""Whole loads: the real load process with Locust against the fixture server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from harness.errors import LoadError
from harness.load.job import ApiName, LoadProgress, Stopped, Timeouts
from harness.load.runner import CODE_ROOT, LoadResult, run_load
from scenarios.plan import Phase, Session, Turn
from tests.support.cases import case_rows, expected
from tests.support.fixture_server import Ending, FixtureServer, Script, Seen
from tests.support.loads import chat_session, chat_turn, job_for, plan_of, play
from tests.support.processes import children_running
from tests.support.turns import Span, overlapping


@pytest.fixture
def server() -> Iterator[FixtureServer]:
    """A server that answers at once, until a test gives it another script."""
    with FixtureServer() as running:
        yield running


def rows(result: LoadResult) -> list[dict[str, Any]]:
    """Return the records as rows, in order of session and turn, with None for unknown."""
    frame = result.records.sort_values(["session_id", "turn"]).astype(object)
    found = frame.where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in found]


def spans(frame: pd.DataFrame) -> list[Span]:
    """Take what the overlap check needs from records."""
    columns = zip(frame.session_id, frame.turn, frame.sent_ns, frame.end_ns, strict=True)
    return [Span(str(session), int(turn), int(sent), int(end)) for session, turn, sent, end in columns]


def test_turns_are_in_order_and_the_real_reply_joins(server: FixtureServer, tmp_path: Path) -> None:
    """Each turn waits for the reply before it plus think time, and is asked with the whole history."""
    server.script = lambda _: Script(first_token_s=0.05, gap_s=0.01, cached=(64, 32))
    plan = plan_of(chat_session("a", 3, think_s=0.1), chat_session("b", 3), slots=2)
    result = play(server, plan, tmp_path)

    assert result.outcome.stopped is Stopped.COMPLETE
    assert result.outcome.of(Phase.COUNTED).ok == 6
    assert (result.outcome.turns_not_played, result.outcome.locust_was_reset) == (0, False)
    assert overlapping(spans(result.records)) == []

    records = [row for row in rows(result) if row["session_id"] == "a"]
    asked = [seen for seen in server.seen if seen.first_words == "a"]
    assert [row["turn"] for row in records] == [0, 1, 2]
    for before, after in pairwise(records):
        assert after["scheduled_ns"] == before["end_ns"] + 100_000_000
        assert after["sent_ns"] >= after["scheduled_ns"]
    for row, seen in zip(records, asked, strict=True):
        assert seen.first_token_ns is not None
        late_ms = (row["first_token_ns"] - seen.first_token_ns) / 1e6
        assert row["first_token_ns"] - row["sent_ns"] >= 50_000_000, f"earlier than the script; late {late_ms} ms"
        assert late_ms >= 0
        assert (row["chunks"], row["prompt_tokens"], row["output_tokens"]) == (3, 100, 3)
        assert (row["cached_tokens"], row["device_cached_tokens"], row["host_cached_tokens"]) == (96, 64, 32)
        assert (row["http_status"], row["error"]) == (200, None)
    assert asked[2].body["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one two three"},
        {"role": "user", "content": "a again 1"},
        {"role": "assistant", "content": "one two three"},
        {"role": "user", "content": "a again 2"},
    ]


def test_a_scripted_reply_joins_in_place_of_the_real_one(server: FixtureServer, tmp_path: Path) -> None:
    """The plan's reply is what the next turn builds on, below the system text."""
    turns = (chat_turn("hi", reply="scripted"), chat_turn("more"))
    play(server, plan_of(Session("s", Phase.COUNTED, turns, system_text="be kind")), tmp_path)
    assert [m["content"] for m in server.seen[1].body["messages"]] == ["be kind", "hi", "scripted", "more"]


def test_the_generate_api_grows_a_history_of_ids(server: FixtureServer, tmp_path: Path) -> None:
    """Ids of system, user and reply (scripted or real) form the next prompt; tiers come from the meta info."""
    server.script = lambda _: Script(cached=(2, 1))
    scripted = Turn(0.0, 3, token_ids=(10, 11), reply_token_ids=(70, 71))
    session = Session(
        "s",
        Phase.COUNTED,
        (scripted, Turn(0.0, 3, token_ids=(12,)), Turn(0.0, 3, token_ids=(13,))),
        system_token_ids=(1, 2),
    )
    result = play(server, plan_of(session), tmp_path, api=ApiName.GENERATE)
    prompts = [seen.body["input_ids"] for seen in server.seen]
    assert prompts == [
        [1, 2, 10, 11],
        [1, 2, 10, 11, 70, 71, 12],
        [1, 2, 10, 11, 70, 71, 12, 900, 901, 902, 13],
    ]
    assert server.seen[0].body["sampling_params"]["max_new_tokens"] == 3
    assert [(r["prompt_tokens"], r["device_cached_tokens"], r["host_cached_tokens"]) for r in rows(result)] == [
        (4, 2, 1),
        (7, 2, 1),
        (11, 2, 1),
    ]


def test_slots_take_sessions_in_order_and_not_before_their_arrival(server: FixtureServer, tmp_path: Path) -> None:
    """One slot plays session after session; a session with a later arrival waits for it."""
    plan = plan_of(chat_session("a"), chat_session("b"), chat_session("c", start_s=0.4), slots=1)
    result = play(server, plan, tmp_path)
    a, b, c = rows(result)
    assert [seen.first_words for seen in server.seen] == ["a", "b", "c"]
    assert b["scheduled_ns"] == a["end_ns"]
    assert c["scheduled_ns"] == result.outcome.started_ns + 400_000_000
    assert c["sent_ns"] >= c["scheduled_ns"]


def test_fillers_are_cut_when_the_counted_sessions_have_ended(server: FixtureServer, tmp_path: Path) -> None:
    """Fillers that still run are recorded as cut with what they had; those that wait are counted."""
    hang = Script(ending=Ending.HANG)
    server.script = lambda seen: hang if seen.first_words == "f" else Script(first_token_s=0.3)
    plan = plan_of(
        chat_session("w", phase=Phase.WARMUP),
        chat_session("c"),
        chat_session("f", 4, phase=Phase.FILLER),
        chat_session("g", phase=Phase.FILLER, start_s=60),
    )
    result = play(server, plan, tmp_path)
    filler = next(row for row in rows(result) if row["session_id"] == "f")
    assert result.outcome.stopped is Stopped.COMPLETE
    assert (filler["status"], filler["chunks"], filler["error"]) == ("cut", 3, "the load ended")
    assert filler["first_token_ns"] is not None
    counts = result.outcome.of(Phase.FILLER)
    assert (counts.cut, counts.not_played) == (1, 4)
    assert result.outcome.turns_not_played == 0


def test_faults_are_failures_with_reasons_and_end_their_session(server: FixtureServer, tmp_path: Path) -> None:
    """Errors after 200, broken and truncated streams and time-outs fail once, without TTFT; later turns are counted."""
    scripts = {
        "error": Script(ending=Ending.ERROR),
        "drop": Script(ending=Ending.DROP),
        "truncated": Script(ending=Ending.TRUNCATED),
        "silent": Script(tokens=()),
        "late": Script(first_token_s=9, keep_alive_s=0.05),
        "stuck": Script(ending=Ending.HANG),
        "no-done": Script(ending=Ending.NO_DONE),
    }
    server.script = lambda seen: scripts[seen.first_words]
    plan = plan_of(*(chat_session(name, 2) for name in scripts))
    limits = Timeouts(connect_s=2, first_token_s=0.5, idle_s=0.3)
    result = play(server, plan, tmp_path, timeouts=limits)

    by_name = {row["session_id"]: row for row in rows(result)}
    reasons = {name: (row["status"], row["error"]) for name, row in by_name.items()}
    assert reasons == {
        "error": ("failed", "scheduler stopped"),
        "drop": ("failed", reasons["drop"][1]),
        "truncated": ("failed", "the stream ended before the reply did"),
        "silent": ("failed", "the stream ended without a token"),
        "late": ("timeout", "no token within 0.5 s"),
        "stuck": ("timeout", "nothing came for 0.3 s"),
        "no-done": ("ok", None),
    }
    assert "reset" in reasons["drop"][1] or "closed the connection inside the reply" in reasons["drop"][1]
    assert all(by_name[name]["first_token_ns"] is None for name in ("error", "drop", "truncated", "silent", "late"))
    assert by_name["stuck"]["first_token_ns"] is not None
    assert result.outcome.turns_not_played == 6
    assert sum(seen.first_words != "no-done" for seen in server.seen) == 6
    assert result.outcome.of(Phase.COUNTED).sent == len(result.records) == 8


def test_case_13_a_503_is_counted_and_never_retried(server: FixtureServer, tmp_path: Path) -> None:
    """The attempts of the case, were they retried, would hide two failures: each request is sent once."""
    attempts = case_rows("13", "attempts.jsonl")
    by_request: dict[str, list[dict[str, Any]]] = {}
    for attempt in attempts:
        by_request.setdefault(attempt["req"], []).append(attempt)

    def script(seen: Seen) -> Script:
        attempt = by_request[seen.first_words].pop(0)
        wait_ms = attempt.get("first_token_ms", attempt["sent_ms"]) - attempt["sent_ms"]
        return Script(http_status=attempt["status"], first_token_s=wait_ms / 1000)

    server.script = script
    result = play(server, plan_of(*(chat_session(name) for name in by_request)), tmp_path)
    want, counts = expected("13"), result.outcome.of(Phase.COUNTED)
    assert len(server.seen) == len(result.records) == want["requests"]
    assert (counts.ok, counts.failed) == (want["ok_first_try"], want["failed"])
    good = [row for row in rows(result) if row["first_token_ns"] is not None]
    assert len(good) == len(want["ttft_samples_ms"])
    assert good[0]["first_token_ns"] - good[0]["sent_ns"] >= want["ttft_samples_ms"][0] * 1_000_000
    bad = [row for row in rows(result) if row["status"] == "failed"]
    assert {(row["http_status"], row["error"]) for row in bad} == {(503, "HTTP 503: the queue is full")}


def test_a_frozen_server_shows_in_the_ttft_of_open_arrivals(server: FixtureServer, tmp_path: Path) -> None:
    """Arrivals keep their schedule while the server stands still for 2 s, so the wait is theirs to show."""
    server.script = lambda seen: Script(freeze_s=2.0 if seen.first_words == "s0" else 0.0)
    result = play(server, plan_of(*(chat_session(f"s{n}", start_s=0.2 * n) for n in range(8))), tmp_path)
    thawed_ns = next(seen.unfrozen_ns for seen in server.seen if seen.first_words == "s0")
    started_ns = result.outcome.started_ns
    assert result.outcome.of(Phase.COUNTED).ok == 8
    for number, row in enumerate(rows(result)):
        assert row["scheduled_ns"] == started_ns + 200_000_000 * number
        ttft_ns = row["first_token_ns"] - row["scheduled_ns"]
        assert row["scheduled_ns"] < thawed_ns
        assert ttft_ns >= thawed_ns - row["scheduled_ns"]


def test_the_load_process_is_pinned(server: FixtureServer, tmp_path: Path) -> None:
    """The load runs on the cores it was given, away from those of the engine."""
    last = max(os.sched_getaffinity(0))
    seen: list[list[int]] = []

    def look(_: LoadProgress) -> None:
        seen.extend(p.cpu_affinity() for p in children_running("harness.load.process"))

    server.script = lambda _: Script(first_token_s=0.2)
    run_load(job_for(server, plan_of(chat_session("a")), tmp_path), on_progress=look, cpus=(last,))
    assert seen
    assert all(cpus == [last] for cpus in seen)


def test_the_limit_stops_the_load(server: FixtureServer, tmp_path: Path) -> None:
    """At the limit running requests are cut and the rest is counted as not played."""
    server.script = lambda _: Script(first_token_s=60)
    result = play(server, plan_of(chat_session("a", 3), chat_session("b"), slots=1), tmp_path, limit_s=0.5)
    assert result.outcome.stopped is Stopped.LIMIT
    assert [row["status"] for row in rows(result)] == ["cut"]
    assert result.outcome.turns_not_played == 3


def test_a_stop_leaves_the_records(server: FixtureServer, tmp_path: Path) -> None:
    """A load that is told to stop writes what it has, and had told how far it was."""
    server.script = lambda seen: Script(ending=Ending.HANG) if "again" in str(seen.body) else Script()
    told: list[LoadProgress] = []
    result = play(
        server,
        plan_of(chat_session("a", 2)),
        tmp_path,
        should_stop=lambda: len(server.seen) == 2,
        on_progress=told.append,
    )
    assert result.outcome.stopped is Stopped.INTERRUPTED
    assert [row["status"] for row in rows(result)] == ["ok", "cut"]
    assert (told[0].done, told[0].of) == (0, 2)
    assert (told[-1].done, told[-1].failed, told[-1].in_flight) == (2, 0, 0)


def test_a_stop_before_the_start_is_no_error(server: FixtureServer, tmp_path: Path) -> None:
    """A load that is stopped while its process still starts says so, with no requests left running."""
    server.script = lambda _: Script(ending=Ending.HANG)
    result = play(server, plan_of(chat_session("a")), tmp_path, should_stop=lambda: True)
    assert result.outcome.stopped is Stopped.INTERRUPTED
    assert result.outcome.of(Phase.COUNTED).ok == 0


def test_a_harness_that_fails_leaves_no_load_process(server: FixtureServer, tmp_path: Path) -> None:
    """An exception in the harness, such as Ctrl-C, ends the load process before it goes on."""
    server.script = lambda _: Script(ending=Ending.HANG)

    before = psutil.Process().children()

    def interrupt(_: LoadProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(server, plan_of(chat_session("a")), tmp_path, on_progress=interrupt)
    assert psutil.Process().children() == before


def test_a_lost_engine_stops_the_load_early(server: FixtureServer, tmp_path: Path) -> None:
    """When nothing listens any more, a few refusals end the load instead of burning the plan."""
    server.script = lambda seen: Script(ending=Ending.HANG) if seen.first_words == "a" else Script()
    plan = plan_of(chat_session("a"), *(chat_session(f"b{n}", 2, think_s=0.05) for n in range(50)), slots=4)

    def kill_once() -> bool:
        if len(server.seen) > 4 and server.port:
            server.die()
            server.port = 0
        return False

    result = play(server, plan, tmp_path, should_stop=kill_once)
    assert result.outcome.stopped is Stopped.ENGINE_LOST
    refused = result.records.error.str.contains("refused", na=False).sum()
    assert refused >= 5
    assert result.outcome.turns_not_played > 50


def test_the_load_process_dies_with_its_harness(server: FixtureServer, tmp_path: Path) -> None:
    """A harness killed by SIGKILL leaves no load process: it stops, and what it had is on disk."""
    server.script = lambda _: Script(ending=Ending.HANG)
    job = job_for(server, plan_of(chat_session("a")), tmp_path, limit_s=120)
    (tmp_path / "job.json").write_text(job.model_dump_json(), encoding="utf-8")
    harness = (
        "import sys; from pathlib import Path\n"
        "from harness.load.job import LoadJob; from harness.load.runner import run_load\n"
        "run_load(LoadJob.read(Path(sys.argv[1])), on_progress=lambda p: print(p.in_flight, flush=True))\n"
    )
    argv = [sys.executable, "-c", harness, str(tmp_path / "job.json")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=CODE_ROOT) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "1":
            assert process.poll() is None
        loads = psutil.Process(process.pid).children()
        process.kill()
    gone, alive = psutil.wait_procs(loads, timeout=60)
    assert (len(gone), alive) == (1, [])
    outcome = tmp_path / "out" / "load.json"
    assert json.loads(outcome.read_text(encoding="utf-8"))["stopped"] == "interrupted"


def test_the_key_is_sent_and_written_nowhere(
    server: FixtureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API key goes from the environment into the header, and into no file."""
    monkeypatch.setenv("TEST_KEY", "k-e-y-value")
    play(server, plan_of(chat_session("a")), tmp_path, api_key_env="TEST_KEY", headers={"X-Session": "7"})
    assert server.seen[0].headers["authorization"] == "Bearer k-e-y-value"
    assert server.seen[0].headers["x-session"] == "7"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"load_job.json", "load.json", "load.log", "requests.parquet"}
    assert not [path for path in (tmp_path / "out").iterdir() if b"k-e-y-value" in path.read_bytes()]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"api": ApiName.GENERATE}, "session a carries text"),
        ({"api_key_env": "NO_SUCH_KEY"}, "--api-key-env NO_SUCH_KEY: that variable holds no key"),
        ({"plan_path": Path("nowhere.jsonl")}, "nowhere.jsonl"),
    ],
)
def test_a_load_that_cannot_start_says_why(
    server: FixtureServer, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    """A load process without an outcome is a LoadError with its own last words, even beside an old outcome."""
    job = job_for(server, plan_of(chat_session("a")), tmp_path, **changes)
    job.out_dir.mkdir()
    (job.out_dir / "load.json").write_text("{}", encoding="utf-8")
    with pytest.raises(LoadError, match=message):
        run_load(job)
    assert server.seen == []
    assert not (job.out_dir / "load.json").exists()


def test_case_51_the_records_stand_when_locust_forgets(server: FixtureServer, tmp_path: Path) -> None:
    """Every request sent has its record, whatever Locust's own statistics say."""
    want = expected("51")["used_count"]
    server.script = lambda seen: Script(tokens=("x",), http_status=503 if "bad" in seen.first_words else 200)
    good = [chat_session(f"s{n}", 12) for n in range(40)]
    bad = [chat_session(f"bad{n}") for n in range(20)]
    result = play(server, plan_of(*good, *bad, slots=16), tmp_path)
    counts = result.outcome.of(Phase.COUNTED)
    assert (len(result.records), counts.ok, counts.failed) == (want, 480, 20)
    assert len(server.seen) == want
    forgetful = result.outcome.model_copy(update={"locust_requests": 310})
    assert (forgetful.sent, forgetful.locust_was_reset) == (want, True)


def test_case_17_overlapping_turns_are_seen() -> None:
    """The check that guards our own loads finds the overlap of the case, and only that."""
    events = case_rows("17", "events.jsonl")
    found = overlapping(Span(e["session"], e["turn"], e["send_ms"], e["done_ms"]) for e in events)
    assert [{"session": s.session, "turn": s.turn} for s in found] == expected("17")["violations"]
