"""Recognising formats, files that are no traces, and the memory that reading takes."""

from __future__ import annotations

import contextlib
import gc
import gzip
import json
import lzma
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.readers import FORMATS, open_trace
from scenarios.trace import TraceError
from tests.support.traces import json_lines, text_file

MOONCAKE = {"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}
CHAT = {"messages": [{"role": "user", "content": "x"}]}
SHAREGPT = {"id": "a", "conversations": [{"from": "human", "value": "x"}]}
CALL = {"t": 0, "type": "n", "in": 70, "out": 1, "hash_ids": [1]}
SESSION = {"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": [CALL]}
EXAMPLES: list[tuple[str, Any]] = [
    ("mooncake", [MOONCAKE]),
    ("mooncake", [{"text_input": "x", "session_id": "s"}]),
    ("mooncake", [{**CHAT, "output_length": 3}]),
    ("openai-chat", [CHAT]),
    ("openai-chat", [{**CHAT, "session_id": "s", "timestamp": 5}]),
    ("sharegpt", [SHAREGPT]),
    ("kv-cache-tester", [SESSION]),
    ("bailian", [{**MOONCAKE, "chat_id": 1, "parent_chat_id": -1}]),
    ("sglang-tokens", [{"input_tokens": [1, 2], "num_output_tokens": 1}]),
    ("sglang-agentic", [{"conversations": [[CHAT]]}]),
    ("aiperf-multi-turn", [{"session_id": "s", "turns": [{"text": "x"}]}]),
    ("turn-lines", [{"session": "s", "user": "x", "delay_ms": 0}]),
    ("turn-lines", [{"session_id": "s", "text": "x", "timestamp": 0}]),
]


@pytest.mark.parametrize(("name", "rows"), EXAMPLES)
def test_lines_are_recognised_by_content(name: str, rows: list[Any], tmp_path: Path) -> None:
    """A misleading file name changes nothing; every example reads to at least one request."""
    trace = open_trace(json_lines(tmp_path / "AzureLLM.csv", rows))
    assert trace.info.format == name
    assert len(list(trace.requests())) >= 1


@pytest.mark.parametrize(
    ("name", "item"), [("sharegpt", SHAREGPT), ("vllm-multi-turn", CHAT), ("kv-cache-tester", SESSION)]
)
@pytest.mark.parametrize("indent", [None, 2])
def test_arrays_are_recognised(name: str, item: Any, indent: int | None, tmp_path: Path) -> None:
    """On one line or on many."""
    file = tmp_path / "t"
    file.write_text(json.dumps([item], indent=indent), encoding="utf-8")
    assert open_trace(file).info.format == name


def test_every_format_has_an_example() -> None:
    """A format that no test recognises is not tested."""
    in_csv_or_arrays = {"azure-llm", "burstgpt", "multi-round-qa", "vllm-multi-turn", "hicache-tune"}
    assert {name for name, _ in EXAMPLES} | in_csv_or_arrays == {format.name for format in FORMATS}


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_packed_files(pack: Any, tmp_path: Path) -> None:
    """gzip and xz are unpacked, by content; a byte order mark is no character."""
    file = tmp_path / "t"
    file.write_bytes(pack(b"\xef\xbb\xbf" + json.dumps(MOONCAKE).encode() + b"\n\n" + json.dumps(MOONCAKE).encode()))
    assert [request.line for request in open_trace(file).requests()] == [1, 3]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_packed_file_that_is_cut_short(pack: Any, tmp_path: Path) -> None:
    """It is said to be cut, not to have bad lines."""
    lines = "\n".join(json.dumps({**MOONCAKE, "timestamp": n, "x": random.random()}) for n in range(9000))
    packed = pack(lines.encode())
    file = tmp_path / "t"
    file.write_bytes(packed[: len(packed) * 2 // 3])
    with pytest.raises(TraceError, match="the packed file is cut short or damaged; fetch it again"):
        list(open_trace(file, skip_bad=10**6).requests())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["the file is empty"]),
        ("\n\n", ["the file is empty"]),
        ("hello", ["neither JSON nor CSV"]),
        ("[]", ["a JSON array without a whole object"]),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ["a CSV heading without a row"]),
        ("a,b\n1,2\n", ["CSV with `a`, `b`", "known: hicache-tune", "burstgpt (CSV with the columns Timestamp"]),
        ('{"timestamp": 1, "inputs": 5}\n', ["`inputs`, `timestamp`", "nearest is mooncake", "shares `timestamp`"]),
        ('{"chat_id": 1, "turn": 2}\n', ["nearest is bailian", "`chat_id`", "--format bailian"]),
        ("{\n", ["cannot be read from its beginning"]),
    ],
)
def test_what_is_no_trace(content: str, words: list[str], tmp_path: Path) -> None:
    """One sentence says what was found, what is known, and which format is nearest."""
    file = tmp_path / "t"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(TraceError) as problem:
        list(open_trace(file).requests())
    assert str(file) in str(problem.value)
    assert all(word in str(problem.value) for word in words), problem.value


def test_a_named_format_is_taken_at_its_word(tmp_path: Path) -> None:
    """Then the missing fields are named; a misspelled name has a nearest one."""
    file = json_lines(tmp_path / "t", [{"chat_id": 1, "turn": 2}])
    with pytest.raises(TraceError, match="line 1: `parent_chat_id` is missing"):
        list(open_trace(file, format="bailian").requests())
    with pytest.raises(TraceError, match="no format is named `balian`; did you mean `bailian`"):
        open_trace(file, format="balian")


def test_a_missing_file_and_a_wrong_folder(tmp_path: Path) -> None:
    """Paths are checked before anything is read."""
    with pytest.raises(TraceError, match=r"cannot read the trace .*nowhere: No such file"):
        open_trace(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="the folder holds no"):
        open_trace(tmp_path)
    json_lines(tmp_path / "a.jsonl", [MOONCAKE])
    with pytest.raises(TraceError, match="is a folder; only kv-cache-tester traces are read from folders"):
        open_trace(tmp_path)


def test_the_first_line_may_be_bad(tmp_path: Path) -> None:
    """The format is that of the first good line."""
    trace = open_trace(json_lines(tmp_path / "t", ['{"timestamp": 0, "inp', MOONCAKE]), skip_bad=1)
    assert [request.line for request in trace.requests()] == [2]
    assert "line 1: not valid JSON" in trace.report.skipped[0]


def test_bad_lines_are_skipped_up_to_a_number(tmp_path: Path) -> None:
    """Each is reported with its line; one more than allowed ends the reading. A second reading begins anew."""
    rows = [MOONCAKE, "{", MOONCAKE, {**MOONCAKE, "input_length": -1}, MOONCAKE]
    trace = open_trace(json_lines(tmp_path / "t", rows), skip_bad=2)
    for _ in range(2):
        assert [request.line for request in trace.requests()] == [1, 3, 5]
        assert [sentence.split(":")[0][-6:] for sentence in trace.report.skipped] == ["line 2", "line 4"]
        assert trace.report.requests == 3
    with pytest.raises(
        TraceError, match=r"line 4: `input_length` is -1.*\(1 bad before it were skipped\).*--skip-bad 2"
    ):
        list(open_trace(tmp_path / "t", skip_bad=1).requests())


def test_mixed_schemas_are_named(tmp_path: Path) -> None:
    """A line of another format is a bad line."""
    with pytest.raises(TraceError, match="line 2: `messages` is missing"):
        list(open_trace(json_lines(tmp_path / "t", [CHAT, MOONCAKE])).requests())


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever is in a file, it is read or refused, never a traceback."""
    file = tmp_path_factory.mktemp("any") / "t"
    file.write_bytes(data)
    with contextlib.suppress(TraceError):
        list(open_trace(file, skip_bad=3).requests())


def write_lines(file: Path, count: int) -> None:
    """Write a Mooncake trace."""
    json_lines(
        file, ({"timestamp": n, "input_length": 512 * 20, "hash_ids": [*range(n, n + 20)]} for n in range(count))
    )


def write_array(file: Path, count: int) -> None:
    """Write conversations of 4 messages of 500 characters as a ShareGPT array."""
    turns = [{"from": speaker, "value": "x" * 500} for speaker in ("human", "gpt")] * 2
    file.write_text(json.dumps([{"conversations": turns} for _ in range(count)]), encoding="utf-8")


def write_document(file: Path, count: int) -> None:
    """Write one kv-cache-tester session over many lines."""
    calls = [{"t": n, "type": "n", "in": 64 * 9, "out": 1, "hash_ids": [*range(9)]} for n in range(count)]
    file.write_text(json.dumps({"id": "s", "block_size": 64, "requests": calls}, indent=1), encoding="utf-8")


def write_csv(file: Path, count: int) -> None:
    """Write a BurstGPT trace."""
    text_file(file, "Timestamp,Request tokens,Response tokens", *(f"{n},5,5" for n in range(count * 4)))


@pytest.mark.parametrize("write", [write_lines, write_array, write_document, write_csv])
def test_memory_does_not_grow_with_the_file(write: Any, tmp_path: Path) -> None:
    """What the peak grows by is less than a tenth of what the file grows by."""
    peaks, sizes = [], []
    for name, count in (("small", 2400), ("large", 9600)):
        write(tmp_path / name, count)
        sizes.append((tmp_path / name).stat().st_size)
        gc.collect()
        tracemalloc.start()
        read = sum(1 for _ in open_trace(tmp_path / name).requests())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert read >= count
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 10
