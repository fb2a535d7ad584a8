"""Formats of numbers alone: Azure, BurstGPT, Bailian, multi-round-qa, SGLang's token_trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.readers import open_trace
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Scope, TraceError
from tests.support.traces import json_lines, text_file

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
BURST_SESSIONS = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
ROUNDS = "prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,finish_time"


def bailian(chat: int, parent: int, at: float, tokens: int = 20, **more: Any) -> dict[str, Any]:
    """Make one line of two blocks."""
    return {
        "chat_id": chat,
        "parent_chat_id": parent,
        "timestamp": at,
        "input_length": tokens,
        "output_length": 4,
        "hash_ids": [7, 8],
        "turn": 1,
        **more,
    }


def refused(file: Path) -> str:
    """Return why a file is refused."""
    with pytest.raises(TraceError) as problem:
        list(open_trace(file).requests())
    return str(problem.value)


def test_azure_with_an_offset_from_utc(tmp_path: Path) -> None:
    """The dates of 2024 have an offset; the columns of 2025 have one more."""
    file = text_file(
        tmp_path / "t",
        f"{AZURE},NumImages",
        "2024-05-10 00:00:00.009930+00:00,2162,5,0",
        "2024-05-10 00:00:01.509930+00:00,2399,6,1",
    )
    assert [(r.at_s, r.input_tokens, r.output_tokens) for r in open_trace(file).requests()] == [
        (0.0, 2162, 5),
        (1.5, 2399, 6),
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("yesterday,5,5", ["line 3", "`TIMESTAMP` is 'yesterday'"]),
        (",5,5", ["line 3", "`TIMESTAMP`"]),
        ("2023-11-16 18:15:46.6805900,-3,5", ["line 3", "`ContextTokens` is '-3'"]),
        ("2023-11-16 18:15:46.6805900,3", ["line 3", "`GeneratedTokens`"]),
        ("2023-11-16 18:15:45.6805900,3,3", ["line 3", "`TIMESTAMP` is 1 s before", "line 2"]),
    ],
)
def test_bad_azure_rows(row: str, words: list[str], tmp_path: Path) -> None:
    """The sentence names line and column."""
    sentence = refused(text_file(tmp_path / "t", AZURE, "2023-11-16 18:15:46.6805900,374,44", row))
    assert all(word in sentence for word in words), sentence


def test_burstgpt(tmp_path: Path) -> None:
    """Whole seconds; requests without a prompt or a reply token had failed and are left out, counted."""
    trace = open_trace(
        text_file(tmp_path / "t", BURST, "5,ChatGPT,472,18,490,Conversation log", "45,GPT-4,0,0,0,API log")
    )
    assert [(r.at_s, r.input_tokens, r.output_tokens) for r in trace.requests()] == [(0.0, 472, 18)]
    assert (trace.info.at_step_s, trace.info.sessions_recorded) == (1.0, False)
    assert trace.report.count(Remark.FAILED) == 1


def test_burstgpt_with_sessions(tmp_path: Path) -> None:
    """Release 2.0: turns of a session, and the think time from when the reply had ended."""
    file = text_file(
        tmp_path / "t",
        BURST_SESSIONS,
        "5,9,2.5,ChatGPT,10,20,30,Conversation log",
        "6,,1,ChatGPT,10,20,30,API log",
        "12,9,1,ChatGPT,40,20,60,Conversation log",
    )
    trace = open_trace(file)
    shape = [(r.session_id, r.turn, r.at_s, r.think_s) for r in trace.requests()]
    assert shape == [("9", 0, 0.0, None), ("line-3", 0, 1.0, None), ("9", 1, 7.0, 4.5)]
    assert trace.info.sessions_recorded


def test_bailian_chats_are_trees(tmp_path: Path) -> None:
    """A second child is a branch; a chat with an unknown parent begins a session."""
    trace = open_trace(
        json_lines(tmp_path / "t", [bailian(1, -1, 61.5), bailian(2, 1, 62), bailian(3, 1, 63), bailian(4, 99, 64)])
    )
    shape = [(r.session_id, r.turn, r.after, r.at_s) for r in trace.requests()]
    assert shape == [("1", 0, None, 0.0), ("1", 1, None, 0.5), ("1", 2, 0, 1.5), ("4", 0, None, 2.5)]
    assert (trace.info.block_tokens, trace.info.scope) == (16, Scope.GLOBAL)
    assert (trace.report.count(Remark.BRANCHED), trace.report.count(Remark.ORPHAN)) == (1, 1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (bailian(1, -1, 5), ["line 2", "`chat_id` 1 stands twice"]),
        (bailian(2, 1, 5, 90), ["line 2", "2 block ids", "6 blocks of 16"]),
        (bailian(2, 1, 5, timestamp=None), ["line 2", "`timestamp` is None"]),
    ],
)
def test_bad_bailian_lines(row: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    """The sentence names line and field."""
    sentence = refused(json_lines(tmp_path / "t", [bailian(1, -1, 1), row]))
    assert all(word in sentence for word in words), sentence


def test_multi_round_qa(tmp_path: Path) -> None:
    """Users are sessions, in the file by their end; times count from the earliest launch."""
    file = text_file(
        tmp_path / "t",
        ROUNDS,
        "100,10,0.1,1.0,2,1,1005.0,1006.0",
        "120,10,0.1,1.0,2,2,1010.5,1012.0",
        "90,10,0.1,1.0,1,1,1000.0,1001.0",
    )
    trace = open_trace(file)
    shape = [(r.session_id, r.turn, r.at_s, r.think_s, r.input_tokens) for r in trace.requests()]
    assert shape == [("2", 0, 5.0, None, 100), ("2", 1, 10.5, 4.5, 120), ("1", 0, 0.0, None, 90)]


def test_multi_round_qa_that_overlaps(tmp_path: Path) -> None:
    """Turns of a session never overlap."""
    rows = ("1,1,0,0,7,1,5,9", "1,1,0,0,7,2,8,10")
    assert "line 3: `launch_time` is before" in refused(text_file(tmp_path / "t", ROUNDS, *rows))
    assert "line 2: `finish_time` is before" in refused(text_file(tmp_path / "u", ROUNDS, "1,1,0,0,7,1,5,4"))


def test_token_ids_become_blocks(tmp_path: Path) -> None:
    """Prompts that begin alike share exactly the blocks of 16 that are equal to their end."""
    common = list(range(32))
    trace = open_trace(
        json_lines(
            tmp_path / "t",
            [
                {"input_tokens": [*common, 1, 2], "output_tokens": [5, 5], "ts": 10},
                {"input_tokens": [*common, 1, 3], "num_output_tokens": 7, "ts": 12.5},
                {"input_tokens": [9, *common], "num_output_tokens": 0, "ts": 12.5},
            ],
        )
    )
    one, two, three = trace.requests()
    assert (trace.info.format, trace.info.clock, trace.info.block_tokens) == ("sglang-tokens", Clock.TRACE, 16)
    assert (one.at_s, two.at_s, one.output_tokens, two.output_tokens) == (0.0, 2.5, 2, 7)
    assert one.block_ids[:2] == two.block_ids[:2]
    assert one.block_ids[2] != two.block_ids[2]
    assert not set(one.block_ids) & set(three.block_ids)
