"""Formats of text: ShareGPT, vLLM, SGLang's agentic_trace, aiperf's multi_turn, one turn a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.readers import open_trace
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Trace, TraceError
from tests.support.cases import case_folder, expected
from tests.support.traces import json_lines, said

USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}


def array(path: Path, *items: Any) -> Path:
    """Write a JSON array over several lines."""
    path.write_text(json.dumps(items, indent=1), encoding="utf-8")
    return path


def part(name: str, *turns: str) -> dict[str, Any]:
    """Make a ShareGPT record; `h:` and `g:` say who speaks."""
    speakers = {"h": "human", "g": "gpt", "x": "alien", "s": "system"}
    return {"id": name, "conversations": [{"from": speakers[t[0]], "value": t[2:]} for t in turns]}


def refused(trace: Path, **options: Any) -> str:
    """Return why a trace is refused."""
    with pytest.raises(TraceError) as problem:
        list(open_trace(trace, **options).requests())
    return str(problem.value)


def turns(trace: Trace) -> list[tuple[str, int, list[tuple[str, str]]]]:
    """Return what is said in each turn."""
    return [(request.session_id, request.turn, said(request)) for request in trace.requests()]


def test_sharegpt_parts_are_joined(tmp_path: Path) -> None:
    """Adjacent parts are one conversation, a later part goes on with it; a reply before any word is left out."""
    trace = open_trace(
        array(
            tmp_path / "t",
            part("a_b_0", "h:1", "g:2"),
            part("a_b_1", "g:2", "h:3", "g:4"),
            part("c_1", "g:cut", "h:5", "g:6"),
            part("a_b_2", "h:7"),
            part("e_0"),
        )
    )
    assert turns(trace) == [
        ("a_b", 0, [("user", "1"), ("assistant", "2")]),
        ("a_b", 1, [("user", "3"), ("assistant", "4")]),
        ("c", 0, [("user", "5"), ("assistant", "6")]),
        ("a_b", 2, [("user", "7")]),
    ]
    counted = {remark: trace.report.count(remark) for remark in (Remark.JOINED, Remark.HEADLESS, Remark.EMPTY)}
    assert counted == {Remark.JOINED: 2, Remark.HEADLESS: 1, Remark.EMPTY: 1}
    assert trace.report.count(Remark.SAME_ROLE) == 1  # the reply that both parts have
    assert trace.report.count(Remark.PARTS_OUT_OF_ORDER) == 0


def test_sharegpt_lines_and_ids_without_parts(tmp_path: Path) -> None:
    """JSON lines are read too; an id without a number, or none, is a conversation of its own."""
    trace = open_trace(json_lines(tmp_path / "t", [part("x", "s:be", "h:1", "g:2"), {**part("y", "h:3"), "id": None}]))
    assert turns(trace) == [
        ("x", 0, [("system", "be"), ("user", "1"), ("assistant", "2")]),
        ("line-2", 0, [("user", "3")]),
    ]


def test_an_unknown_speaker_is_a_bad_record(tmp_path: Path) -> None:
    """The record, the role, and the roles that are known."""
    file = array(tmp_path / "t", part("a", "h:1"), part("b", "x:2"), part("c", "h:3"))
    assert "record 2: unknown role 'alien'; known: system" in refused(file)
    trace = open_trace(file, skip_bad=1)
    assert [name for name, *_ in turns(trace)] == ["a", "c"]
    assert len(trace.report.skipped) == 1
    assert trace.report.skipped[0].startswith(f"{file}, record 2: unknown role 'alien'")


def test_an_array_that_is_cut_short_loses_only_its_last_record(tmp_path: Path) -> None:
    """Whole records before the end are kept when one bad record is allowed."""
    file = array(tmp_path / "t", *(part(f"n{n}", "h:1", "g:2") for n in range(5)))
    file.write_text(file.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    assert "record 5: the file ends in the middle" in refused(file)
    assert len(turns(open_trace(file, skip_bad=1))) == 4


def test_an_array_with_broken_json_cannot_be_read_on(tmp_path: Path) -> None:
    """What follows a fault inside an array is unknown, so nothing is skipped."""
    file = array(tmp_path / "t", *(part(f"n{n}", "h:1", "g:2") for n in range(5)))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"n3",', '"n3":', 1), encoding="utf-8")
    sentence = refused(file, skip_bad=5)
    assert "record 4: not valid JSON" in sentence
    assert "nothing after it can be read" in sentence


def test_vllm_conversations(tmp_path: Path) -> None:
    """Each conversation is a session."""
    trace = open_trace(array(tmp_path / "t", {"id": "a", "messages": [USER, REPLY, USER]}, {"messages": [USER]}))
    assert trace.info.format == "vllm-multi-turn"
    assert turns(trace) == [
        ("a", 0, [("user", "hi"), ("assistant", "hello")]),
        ("a", 1, [("user", "hi")]),
        ("record-2", 0, [("user", "hi")]),
    ]
    assert "`id` 'a' stands twice" in refused(array(tmp_path / "u", *[{"id": "a", "messages": [USER]}] * 2))


def test_a_vllm_config_is_no_trace(tmp_path: Path) -> None:
    """The sentence says what it is and what to do."""
    file = tmp_path / "t"
    config = {"filetype": "generate_conversations", "num_conversations": 24, "prompt_input": {"num_turns": {}}}
    file.write_text(json.dumps(config, indent=1), encoding="utf-8")
    sentence = refused(file)
    assert "`generate_conversations` config of vLLM describes random conversations" in sentence
    assert "write a scenario" in sentence


@pytest.mark.parametrize("indent", [None, 1])
def test_sglang_agentic_traces(indent: int | None, tmp_path: Path) -> None:
    """Turns hold new messages and the length of the whole prompt; a turn without messages is none."""
    turn = {"messages": [{"role": "system", "content": "s"}, USER], "prompt_tokens": 73}
    file = tmp_path / "t"
    data = {"metadata": {"x": [1]}, "conversations": [[turn, {"messages": []}, {**turn, "messages": [USER]}], [turn]]}
    file.write_text(json.dumps(data, indent=indent), encoding="utf-8")
    trace = open_trace(file)
    shape = [(r.session_id, r.turn, r.input_tokens, len(r.messages)) for r in trace.requests()]
    assert trace.info.format == "sglang-agentic"
    assert shape == [("conversation-1", 0, 73, 2), ("conversation-1", 1, 73, 1), ("conversation-2", 0, 73, 2)]


def test_aiperf_turns_with_delays(tmp_path: Path) -> None:
    """A leading system turn is the first turn's; images are counted; a second line goes on with its session."""
    trace = open_trace(
        json_lines(
            tmp_path / "t",
            [
                {
                    "session_id": "a",
                    "turns": [
                        {"role": "system", "text": "be"},
                        {"texts": ["x", {"name": "n", "contents": ["y", "z"]}], "image": "url"},
                        {"text": "more", "delay": 1500, "output_length": 9},
                    ],
                },
                {"session_id": "a", "turns": [{"text": "late", "delay": 10}]},
            ],
        )
    )
    assert [(r.turn, r.think_s, r.output_tokens, said(r)) for r in trace.requests()] == [
        (0, None, None, [("system", "be"), ("user", "x\ny\nz")]),
        (1, 1.5, 9, [("user", "more")]),
        (2, 0.01, None, [("user", "late")]),
    ]
    assert (trace.info.clock, trace.report.count(Remark.NOT_TEXT)) == (Clock.NONE, 1)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ([{"text": "a", "delay": 1}], ["line 2", "`delay`", "`timestamp`"]),
        ([{"text": "a"}], ["line 2", "no time", "`timestamp`"]),
        ([{"text": "a", "timestamp": 5}, {"text": "b", "timestamp": 4}], ["line 2", "`turns.1.timestamp`", "before"]),
        ([{"text": "a", "timestamp": 1, "role": "assistant"}], ["line 2", "role assistant"]),
        ([], ["line 2", "`turns`"]),
    ],
)
def test_bad_aiperf_sessions(second: list[Any], words: list[str], tmp_path: Path) -> None:
    """The sentence names line and field."""
    first = {"turns": [{"text": "a", "timestamp": 0}, {"text": "b", "timestamp": 10}]}
    sentence = refused(json_lines(tmp_path / "t", [first, {"turns": second}]))
    assert all(word in sentence for word in words), sentence


def test_case_19_mixed_times(tmp_path: Path) -> None:
    """A turn that is timed by another field than the others is never dropped without a word."""
    sentence = refused(case_folder("19") / "scenario.jsonl")
    assert all(word in sentence for word in expected("19")["error_names"])


def test_one_turn_a_line(tmp_path: Path) -> None:
    """Delays count from the end of the reply; that of a first turn is the session's start, and remarked."""
    rows = [
        {"session": "a", "user": "1", "delay_ms": 700},
        {"session": "a", "user": "2", "delay_ms": 1500},
        {"session": "b", "user": "3"},
    ]
    trace = open_trace(json_lines(tmp_path / "t", rows))
    assert [(r.session_id, r.turn, r.think_s) for r in trace.requests()] == [
        ("a", 0, 0.7),
        ("a", 1, 1.5),
        ("b", 0, None),
    ]
    assert trace.report.count(Remark.START_OFFSET) == 1


def test_one_turn_a_line_by_the_clock(tmp_path: Path) -> None:
    """A first turn may go without a delay, but not without a timestamp."""
    timed = [{"session_id": n, "text": "x", "timestamp": n * 1000} for n in (1, 2)]
    assert [r.at_s for r in open_trace(json_lines(tmp_path / "t", timed)).requests()] == [0.0, 1.0]
    sentence = refused(json_lines(tmp_path / "u", [timed[0], {"session_id": 9, "text": "x"}]))
    assert "line 2: has no time where line 1 has `timestamp`" in sentence
    later = refused(json_lines(tmp_path / "v", [{"session_id": 9, "text": "x"}, timed[0]]))
    assert "line 2: has `timestamp` where line 1 has no time" in later
