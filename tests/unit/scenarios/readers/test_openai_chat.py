"""Chat logs: whole conversations a line, requests that repeat their history, and how they are joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.readers import open_trace
from scenarios.readers.chat import GrowingLog
from scenarios.readers.source import Place
from scenarios.reading_report import ReadingReport, Remark
from scenarios.trace import Clock, Message, Trace, TraceError, TraceRequest
from scenarios.trace_sessions import trace_sessions
from tests.support.traces import json_lines, said

PLACE = Place(Path("log"), 1)


def message(text: str) -> dict[str, str]:
    """Make a message of `u:text`, `a:text`, `s:text` or `t:text`."""
    roles = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    return {"role": roles[text[0]], "content": text[2:]}


def line(*messages: str, **more: Any) -> dict[str, Any]:
    """Make one line."""
    return {"messages": [message(text) for text in messages], **more}


def log(tmp_path: Path, *rows: Any) -> Trace:
    """Open rows as a trace."""
    return open_trace(json_lines(tmp_path / "log", rows))


def shape(request: TraceRequest) -> tuple[str, int, int | None, str]:
    """Return session, turn, what it follows, and what is said, in short."""
    return request.session_id, request.turn, request.after, " ".join(f"{r[0]}:{t}" for r, t in said(request))


def test_one_conversation_a_line(tmp_path: Path) -> None:
    """Every reply makes a turn; replies in a row are one."""
    trace = log(tmp_path, line("s:be", "u:1", "a:2", "u:3", "t:4", "a:5", "a:6"), line("u:7", "a:8"))
    assert [shape(request) for request in trace.requests()] == [
        ("line-1", 0, None, "s:be u:1 a:2"),
        ("line-1", 1, None, "u:3 t:4 a:5\n6"),
        ("line-2", 0, None, "u:7 a:8"),
    ]


def test_requests_that_repeat_their_history_are_one_session(tmp_path: Path) -> None:
    """Two conversations interleave; the reply to a request is seen in the next one."""
    trace = log(
        tmp_path,
        line("s:be", "u:1"),
        line("s:be", "u:x"),
        line("s:be", "u:1", "a:2", "u:3"),
        line("s:be", "u:x", "a:y", "u:z"),
        line("s:be", "u:1", "a:2", "u:3", "a:4", "u:5"),
    )
    assert [shape(request) for request in trace.requests()] == [
        ("line-1", 0, None, "s:be u:1"),
        ("line-2", 0, None, "s:be u:x"),
        ("line-1", 1, None, "a:2 u:3"),
        ("line-2", 1, None, "a:y u:z"),
        ("line-1", 2, None, "a:4 u:5"),
    ]
    whole = {session.session_id: session for session in trace_sessions(trace)}
    assert [said(turn) for turn in whole["line-1"].turns] == [
        [("system", "be"), ("user", "1"), ("assistant", "2")],
        [("user", "3"), ("assistant", "4")],
        [("user", "5")],
    ]


def test_a_reply_beside_the_messages(tmp_path: Path) -> None:
    """A response's message is the reply, its usage the lengths."""
    response = {"choices": [{"message": message("a:2")}], "usage": {"prompt_tokens": 11, "completion_tokens": 3}}
    trace = log(tmp_path, line("u:1", response=response, created=100), line("u:1", "a:2", "u:3", created=101.5))
    first, second = trace.requests()
    assert (shape(first), first.input_tokens, first.output_tokens, first.at_s) == (
        ("line-1", 0, None, "u:1 a:2"),
        11,
        3,
        0,
    )
    assert (shape(second), second.at_s, trace.info.clock) == (("line-1", 1, None, "u:3"), 1.5, Clock.TRACE)


def test_an_edited_message_is_a_branch(tmp_path: Path) -> None:
    """A history that ends earlier than the latest turn goes on from there; the same request again is a retry."""
    trace = log(
        tmp_path,
        line("u:1", "a:2", "u:3", "a:4"),
        line("u:1", "a:2", "u:other"),
        line("u:1", "a:2", "u:other"),
    )
    assert [shape(request) for request in trace.requests()] == [
        ("line-1", 0, None, "u:1 a:2"),
        ("line-1", 1, None, "u:3 a:4"),
        ("line-1", 2, 0, "u:other"),
        ("line-1", 3, 0, "u:other"),
    ]
    assert trace.report.count(Remark.BRANCHED) == 2


def test_a_prompt_that_grew_without_a_reply_is_another_prompt(tmp_path: Path) -> None:
    """The reply to the shorter one is nowhere in it, so it does not go on from there."""
    trace = log(tmp_path, line("u:1"), line("u:1", "u:2"))
    assert [shape(request) for request in trace.requests()] == [
        ("line-1", 0, None, "u:1"),
        ("line-2", 0, None, "u:1 u:2"),
    ]


def test_named_sessions_do_not_mix(tmp_path: Path) -> None:
    """Two sessions of the same words stay two; a history that was cut begins anew, within its session."""
    trace = log(
        tmp_path,
        line("u:1", "a:2", session_id="x"),
        line("u:1", "a:2", "u:3", session_id="y"),
        line("s:summary", "u:4", session_id="x"),
    )
    assert [shape(request) for request in trace.requests()] == [
        ("x", 0, None, "u:1 a:2"),
        ("y", 0, None, "u:1 a:2 u:3"),
        ("x", 1, -1, "s:summary u:4"),
    ]
    assert trace.report.count(Remark.REWRITTEN) == 1


def test_parts_tools_and_calls(tmp_path: Path) -> None:
    """Text parts are joined, images counted, tool definitions and calls kept as text."""
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "here"},
    ]
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    trace = log(tmp_path, {"tools": [{"name": "f"}], "messages": [{"role": "user", "content": content}, call]})
    (request,) = trace.requests()
    assert said(request) == [
        ("system", '[{"name":"f"}]'),
        ("user", "look\nhere"),
        ("assistant", '{"name":"f","arguments":"{}"}'),
    ]
    assert (trace.report.count(Remark.NOT_TEXT), trace.report.count(Remark.TOOLS)) == (1, 1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (line("u:1", timestamp="2024-01-01"), ["line 2", "`timestamp`", "line 1", "no time"]),
        ({"messages": [{"role": "wizard", "content": "x"}]}, ["line 2", "unknown role 'wizard'", "developer"]),
        ({"messages": []}, ["line 2", "`messages`", "at least 1"]),
        ({"messages": [{"content": "x"}]}, ["line 2", "`messages.0.role` is missing"]),
        ({"prompt": "x"}, ["line 2", "`messages` is missing"]),
    ],
)
def test_bad_lines(row: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    """The sentence names line and field."""
    with pytest.raises(TraceError) as problem:
        list(log(tmp_path, line("u:1"), row).requests())
    assert all(word in str(problem.value) for word in words), problem.value


def test_dates_seconds_and_milliseconds(tmp_path: Path) -> None:
    """Unix times in seconds and milliseconds and ISO dates give the same second; another text is refused."""
    for first, second in (
        (1.7e9, 1.7e9 + 1),
        (1.7e12, 1.7e12 + 1000),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"),
    ):
        trace = log(tmp_path, line("u:1", timestamp=first), line("u:2", timestamp=second))
        assert [request.at_s for request in trace.requests()] == [0.0, 1.0]
    with pytest.raises(TraceError, match="line 1: `timestamp` is 'noon'"):
        list(log(tmp_path, line("u:1", timestamp="noon")).requests())


def test_a_line_without_a_user_is_counted(tmp_path: Path) -> None:
    """Nothing can be sent for it."""
    trace = log(tmp_path, line("u:1"), line("s:be", "a:2"))
    assert len(list(trace.requests())) == 1
    assert trace.report.count(Remark.EMPTY) == 1


def test_old_histories_are_forgotten() -> None:
    """Memory is bounded: a conversation that is continued too late begins a session of its own."""
    grown = GrowingLog(ReadingReport(), remembered=4)
    one, two = Message("user", "1"), Message("assistant", "2")
    grown.add(None, [one, two], None, PLACE)
    assert grown.add(None, [one, two, one], None, Place(Path("log"), 2))[0].turn == 1
    for number in range(3, 8):
        grown.add(None, [Message("user", str(number))], None, Place(Path("log"), number))
    assert grown.add(None, [one, two, Message("user", "x")], None, Place(Path("log"), 9))[0].session_id == "line-9"


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), min_size=1, max_size=6))
def test_growing_conversations_come_out_as_they_went_in(conversations: list[list[str]]) -> None:
    """However conversations interleave, each one's turns hold its messages, once and in order."""
    grown = GrowingLog(ReadingReport())
    told: dict[str, list[str]] = {}
    for step in range(5):
        for number, words in enumerate(conversations):
            if step < len(words):
                # The number keeps conversations apart: equal ones would rightly be joined.
                messages = [
                    Message("assistant" if index % 2 else "user", f"{number} {words[index // 2]} {index}")
                    for index in range(2 * step + 1)
                ]
                (turn,) = grown.add(None, messages, None, Place(Path("log"), step * 100 + number + 1))
                told.setdefault(turn.session_id, []).extend(text for _, text in said(turn))
    for number, words in enumerate(conversations):
        full = [f"{number} {words[index // 2]} {index}" for index in range(2 * len(words) - 1)]
        assert told[f"line-{number + 1}"] == full
