"""kv-cache-tester sessions: files, lines, folders; sub-agents, copies, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.readers import open_trace
from scenarios.reading_report import Remark
from scenarios.trace import TraceError
from tests.support.traces import json_lines


def call(t: float, tokens: int = 130, think: float | None = None, **more: Any) -> dict[str, Any]:
    """Make one request of 130 tokens: two whole blocks and a rest."""
    return {"t": t, "type": "n", "in": tokens, "out": 3, "hash_ids": [1, 2], "think_time": think, **more}


def session(name: str, *requests: Any, **more: Any) -> dict[str, Any]:
    """Make one session."""
    return {"id": name, "block_size": 64, "hash_id_scope": "local", **more, "requests": list(requests)}


AGENT = {"t": 10.0, "type": "subagent", "agent_id": "a", "duration_ms": 5000, "requests": [call(0), call(2, think=1)]}


def test_a_session_on_one_line_and_in_a_document_read_the_same(tmp_path: Path) -> None:
    """Lines, a pretty document, and two documents in a row give the same requests."""
    both = [session("a", call(0), AGENT, call(20, think=12)), session("b", call(1))]
    in_lines = open_trace(json_lines(tmp_path / "lines", both))
    pretty = tmp_path / "pretty"
    pretty.write_text("\n".join(json.dumps(one, indent=1) for one in both), encoding="utf-8")
    in_documents = open_trace(pretty)
    shape = [(r.session_id, r.turn, r.after, r.at_s, r.think_s) for r in in_lines.requests()]
    assert shape == [(r.session_id, r.turn, r.after, r.at_s, r.think_s) for r in in_documents.requests()]
    assert in_lines.info == in_documents.info


def test_sub_agents_are_branches_and_their_wait_is_no_think_time(tmp_path: Path) -> None:
    """The agent's requests stand by time on a branch of their own; the session thought for 12 s, 5 of them waiting."""
    trace = open_trace(
        json_lines(tmp_path / "t", [session("a", call(0), AGENT, call(20, think=12), call(30, think=4))])
    )
    shape = [(r.turn, r.after, r.at_s, r.think_s) for r in trace.requests()]
    assert shape == [(0, None, 0, None), (1, -1, 10, None), (2, None, 12, 1), (3, 0, 20, 7), (4, None, 30, 4)]
    assert trace.report.count(Remark.SUBAGENT) == 1


def test_an_agent_on_the_clock_of_its_session(tmp_path: Path) -> None:
    """Times that begin at or after the agent's start count from the session's start; parallel agents interleave."""
    one = {**AGENT, "requests": [call(10.0), call(14.0)]}
    two = {**AGENT, "t": 11.0, "requests": [call(11.5)]}
    trace = open_trace(json_lines(tmp_path / "t", [session("a", call(0), one, two)]))
    shape = [(r.turn, r.after, r.at_s) for r in trace.requests()]
    assert shape == [(0, None, 0), (1, -1, 10), (2, -1, 11.5), (3, 1, 14)]


def test_a_folder_of_files(tmp_path: Path) -> None:
    """Files are read by name; a name that is taken gets a number."""
    for name in ("2.json", "1.json"):
        (tmp_path / name).write_text(json.dumps(session(f"s{name[0]}", call(0, 131)), indent=1), encoding="utf-8")
    (tmp_path / "3.jsonl").write_text(json.dumps(session("s1", call(0))) + "\n", encoding="utf-8")
    assert [r.session_id for r in open_trace(tmp_path).requests()] == ["s1", "s2", "s1#2"]


def test_copies_are_counted_and_dropped_on_demand(tmp_path: Path) -> None:
    """Sessions with the same times and lengths in their first 10 requests are copies, whatever follows."""
    many = [call(n, 130 + n) for n in range(12)]
    file = json_lines(tmp_path / "t", [session("a", *many), session("b", *many[:11]), session("c", *many[:9])])
    kept = open_trace(file)
    assert len(list(kept.requests())) == 12 + 11 + 9
    assert kept.report.count(Remark.DUPLICATE) == 1
    dropped = open_trace(file, drop_duplicates=True)
    assert {r.session_id for r in dropped.requests()} == {"a", "c"}
    assert dropped.report.count(Remark.DUPLICATE_DROPPED) == 1


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (session("b", call(3), call(1)), ["line 2", "`t` is 1 s", "before the 3 s"]),
        (session("b", call(0, 200)), ["line 2", "2 block ids", "4 blocks of 64"]),
        (session("b", call(0, 300)), ["line 2", "300 tokens"]),
        (session("b", call(-1)), ["line 2", "`requests.0", "-1"]),
        (session("b", call(0), {"t": 1, "type": "x"}), ["line 2", "`requests.1`", "'subagent'"]),
        (session("b", call(0), block_size=16), ["line 2", "`block_size` is 16", "64"]),
        (session("b", call(0), hash_id_scope="global"), ["line 2", "`hash_id_scope`", "local"]),
        ({"block_size": 64, "requests": []}, ["line 2", "`id` is missing"]),
    ],
)
def test_a_bad_session_is_named(second: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    """A bad session is bad as a whole: nothing of it is read, and the others are."""
    file = json_lines(tmp_path / "t", [session("a", call(0)), second, session("c", call(0, 131))])
    with pytest.raises(TraceError) as problem:
        list(open_trace(file).requests())
    assert all(word in str(problem.value) for word in words), problem.value
    trace = open_trace(file, skip_bad=1)
    assert [r.session_id for r in trace.requests()] == ["a", "c"]
    assert len(trace.report.skipped) == 1


def test_a_document_that_is_cut_short(tmp_path: Path) -> None:
    """The record in which a document ends is the bad one; the requests before it are whole."""
    text = json.dumps(session("a", *(call(n) for n in range(30))), indent=1)
    file = tmp_path / "t.json"
    file.write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(TraceError, match=r"record 15: the file ends in the middle of this record; .*--skip-bad 1"):
        list(open_trace(file).requests())
    assert len(list(open_trace(file, skip_bad=1).requests())) == 14
