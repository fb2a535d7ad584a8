"""Mooncake lines and aiperf's additions, each by a trace of a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.readers import open_trace
from scenarios.reading_report import Remark
from scenarios.trace import Clock, TraceError, TraceRequest
from tests.support.traces import json_lines, said


def line(at_ms: float = 0, tokens: int = 1000, blocks: list[int] | None = None, **more: Any) -> dict[str, Any]:
    """Make one line with two blocks."""
    return {"timestamp": at_ms, "input_length": tokens, "output_length": 5, "hash_ids": blocks or [1, 2], **more}


def read(tmp_path: Path, *rows: Any, **options: Any) -> list[TraceRequest]:
    """Read rows as a trace."""
    return list(open_trace(json_lines(tmp_path / "trace", rows), **options).requests())


def refused(tmp_path: Path, *rows: Any, **options: Any) -> str:
    """Return why rows are refused."""
    with pytest.raises(TraceError) as problem:
        read(tmp_path, *rows, **options)
    return str(problem.value)


def test_milliseconds_become_seconds_since_the_first_arrival(tmp_path: Path) -> None:
    """A window cut from a longer trace begins at 0."""
    first, second = read(tmp_path, line(7_000), line(8_500))
    assert (first.at_s, second.at_s) == (0.0, 1.5)
    assert (first.session_id, second.session_id) == ("line-1", "line-2")
    assert (first.input_tokens, first.output_tokens, first.block_ids, first.line) == (1000, 5, (1, 2), 1)


def test_lines_of_one_session_are_its_turns(tmp_path: Path) -> None:
    """`session_id` joins lines, and a shorter prompt is remarked with its line."""
    trace = open_trace(
        json_lines(tmp_path / "t", [line(0, session_id="a"), line(1, session_id=7), line(2, 900, session_id="a")])
    )
    assert [(r.session_id, r.turn) for r in trace.requests()] == [("a", 0), ("7", 0), ("a", 1)]
    assert trace.info.sessions_recorded
    assert trace.report.count(Remark.SHRANK) == 1
    assert "(first: line 3)" in trace.report.sentences()[0]


def test_aiperf_delays_add_to_the_context(tmp_path: Path) -> None:
    """Without block ids, a session's lengths are what each turn adds; the delay is its think time."""
    turns = read(
        tmp_path,
        {"session_id": "s", "input_length": 300, "output_length": 40},
        {"session_id": "s", "delay": 2000, "input_length": 150, "output_length": 20},
    )
    assert [turn.input_tokens for turn in turns] == [300, 300 + 40 + 150]
    assert [turn.think_s for turn in turns] == [None, 2.0]
    assert [turn.at_s for turn in turns] == [None, None]


def test_aiperf_whole_contexts_are_taken_as_they_are(tmp_path: Path) -> None:
    """`context_mode` says that a length is that of the whole prompt."""
    rows = [{"session_id": "s", "input_length": n, "context_mode": "message_array_with_responses"} for n in (9, 12)]
    assert [turn.input_tokens for turn in read(tmp_path, *rows)] == [9, 12]


def test_a_session_may_begin_by_the_clock_and_go_on_by_delays(tmp_path: Path) -> None:
    """First turns have a timestamp, later ones a delay."""
    opening = {"timestamp": 5, "session_id": "s", "input_length": 3}
    first, second = read(tmp_path, opening, {"session_id": "s", "delay": 10, "input_length": 3})
    assert (first.at_s, first.think_s, second.at_s, second.think_s) == (0.0, None, None, 0.01)


def test_text_input_and_delta_messages(tmp_path: Path) -> None:
    """Text is a user's message; delta messages are new ones, with tool definitions once."""
    assert said(read(tmp_path, {"text_input": "hello", "output_length": 4})[0]) == [("user", "hello")]
    delta = {"session_id": "s", "message_mode": "delta", "tools": [{"name": "f"}]}
    turns = read(
        tmp_path,
        {**delta, "messages": [{"role": "user", "content": "one"}]},
        {**delta, "messages": [{"role": "user", "content": "two"}]},
    )
    assert [said(turn) for turn in turns] == [[("system", '[{"name":"f"}]'), ("user", "one")], [("user", "two")]]


def test_history_messages_are_joined(tmp_path: Path) -> None:
    """Whole histories become turns; their output length stays."""
    user, reply, again = ({"role": r, "content": c} for r, c in (("user", "a"), ("assistant", "b"), ("user", "c")))
    turns = read(
        tmp_path,
        {"messages": [user], "output_length": 4, "timestamp": 0},
        {"messages": [user, reply, again], "output_length": 6, "timestamp": 1000},
    )
    assert [(turn.session_id, turn.turn, turn.output_tokens, turn.at_s) for turn in turns] == [
        ("line-1", 0, 4, 0.0),
        ("line-1", 1, 6, 1.0),
    ]
    assert said(turns[1]) == [("assistant", "b"), ("user", "c")]


@pytest.mark.parametrize("size", [16, 64, 512])
def test_the_block_size_is_found(size: int, tmp_path: Path) -> None:
    """The size that explains the sample is taken."""
    rows = [line(n, size * 3 + 1, [1, 2, 3, 4]) for n in range(3)]
    assert open_trace(json_lines(tmp_path / "t", rows)).info.block_tokens == size


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([line(), line(-5)], ["line 2", "`timestamp` is -5", "greater than or equal to 0"]),
        ([line(5), line(3)], ["line 2", "`timestamp`", "0.002 s before", "line 1", "sort"]),
        ([line(), line(), line(blocks=[1])], ["line 3", "1 block ids", "1000 tokens", "2 blocks of 512"]),
        ([line(), {"timestamp": 1, "hash_ids": [1]}], ["line 2", "none of `input_length`"]),
        ([line(), line(text_input="x")], ["line 2", "`input_length` and `text_input`", "exactly one"]),
        ([line(), {**line(), "timestamp": None}], ["line 2", "no time", "line 1", "`timestamp`"]),
        ([line(), line(tokens=0)], ["line 2", "`input_length` is 0"]),
        ([line(), {**line(), "input_length": "9"}], ["line 2", "`input_length` is '9'", "valid integer"]),
        ([line(), {**line(), "timestamp": float("nan")}], ["line 2", "`timestamp` is nan", "finite"]),
        ([line(), '{"timestamp": 1, "input_len'], ["line 2", "not valid JSON", "cut short"]),
        ([line(), "[1, 2]"], ["line 2", "object"]),
        ([line(), '{"timestamp": 1} x'], ["line 2", "not valid JSON"]),
    ],
)
def test_a_bad_line_is_named_with_its_field(rows: list[Any], words: list[str], tmp_path: Path) -> None:
    """The sentence has the line, the field, what is wrong and how to go on."""
    sentence = refused(tmp_path, *rows)
    assert all(word in sentence for word in [*words, "--skip-bad 1"]), sentence


def test_overlong_contexts_are_bad_when_a_limit_is_given(tmp_path: Path) -> None:
    """Prompt and reply count together."""
    assert len(read(tmp_path, line(), max_context_tokens=1005)) == 1
    sentence = refused(tmp_path, line(), max_context_tokens=1004)
    assert "line 1: prompt and reply are 1005 tokens, over the limit of 1004" in sentence


def test_clocks(tmp_path: Path) -> None:
    """Without timestamps there is no clock."""
    assert open_trace(json_lines(tmp_path / "a", [line()])).info.clock is Clock.TRACE
    assert open_trace(json_lines(tmp_path / "b", [{"input_length": 5}])).info.clock is Clock.NONE
