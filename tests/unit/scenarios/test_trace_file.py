"""Sessions of a trace, whole, and the file that keeps them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.readers import open_trace
from scenarios.reading_report import ReadingReport, Remark
from scenarios.trace import Clock, Message, Scope, Trace, TraceError, TraceInfo, TraceRequest, TraceSession
from scenarios.trace_file import TraceTotals, is_trace_file, read_sessions, read_trace_file, write_trace_file
from scenarios.trace_sessions import trace_sessions
from tests.support.traces import CONVERSATION, few_sessions, infinite_hit_rate

INFO = TraceInfo("mine", Clock.TRACE, sessions_recorded=True)


def trace(requests: list[TraceRequest], info: TraceInfo = INFO) -> Trace:
    """Make a trace of requests."""
    return Trace(info, lambda: iter(requests))


def request(session: str, turn: int, at_s: float | None = None, line: int = 0, **more: object) -> TraceRequest:
    """Make a request of 5 tokens."""
    return replace(TraceRequest(session, turn, 5, 2, at_s=at_s, line=line), **more)  # type: ignore[arg-type]


def test_sessions_come_as_soon_as_they_are_whole() -> None:
    """The order is that of their ends; the start is the first arrival."""
    found = list(
        trace_sessions(trace([request("a", 0, 1), request("b", 0, 2), request("b", 1, 3), request("a", 1, 4)]))
    )
    assert [(session.session_id, session.start_s, len(session.turns)) for session in found] == [
        ("b", 2, 2),
        ("a", 1, 2),
    ]


def test_the_start_of_a_session_without_arrivals() -> None:
    """A delay before the first turn is all that is known; on a clock of its own a session's start is not known."""
    untimed = replace(INFO, clock=Clock.NONE)
    (delayed,) = trace_sessions(trace([request("a", 0, think_s=3.0)], untimed))
    assert delayed.start_s == 3.0
    (own,) = trace_sessions(trace([request("a", 0, 7.0)], replace(INFO, clock=Clock.SESSION)))
    assert own.start_s is None


def test_late_replies_go_to_the_turn_they_answer() -> None:
    """Also past a branch; a reply that is known stays."""
    user, reply = Message("user", "u"), Message("assistant", "r")
    (session,) = trace_sessions(
        trace(
            [
                request("a", 0, messages=(user,)),
                request("a", 1, messages=(user,), after=-1),
                request("a", 2, messages=(reply, user), after=0),
                request("a", 3, messages=(reply, user), reply=reply),
                request("a", 4, messages=(reply, user)),
            ]
        )
    )
    assert [turn.reply for turn in session.turns] == [reply, None, reply, reply, None]
    assert [len(turn.messages) for turn in session.turns] == [1, 1, 1, 1, 2]


def test_a_file_reads_as_what_was_written(tmp_path: Path) -> None:
    """Requests in order of arrival, sessions by their start, with everything that is known."""
    requests = [
        request("é", 0, 0.5, 1, block_ids=(1, 2)),
        request("b", 0, 0.5, 2, messages=(Message("user", "你好\n"),), reply=Message("assistant", "")),
        request("é", 1, 2.25, 3, after=-1, think_s=0.0, output_tokens=None),
        request("b", 1, 2.25, 4, input_tokens=None),
    ]
    info = TraceInfo("mine", Clock.TRACE, True, 16, Scope.GLOBAL, 3.0, True)
    path = tmp_path / "t.jsonl.gz"
    assert write_trace_file(trace(requests, info), path) == TraceTotals(2, 4, None, None)
    read = read_trace_file(path)
    assert (read.info, list(read.requests())) == (info, requests)
    assert [session.session_id for session in read_sessions(path)] == ["é", "b"]
    assert list(open_trace(path).requests()) == requests
    assert not list(tmp_path.glob(".*"))


TIMES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=40)


@given(TIMES)
def test_any_interleaving_reads_in_order_of_arrival(tmp_path_factory: pytest.TempPathFactory, draws: object) -> None:
    """However sessions overlap, a file gives the requests of the trace back in their order."""
    assert isinstance(draws, list)
    turns: dict[str, int] = {}
    requests = []
    for line, (name, step) in enumerate(sorted(draws, key=lambda draw: draw[1]), start=1):
        turn = turns[str(name)] = turns.get(str(name), -1) + 1
        requests.append(request(str(name), turn, float(step), line))
    path = tmp_path_factory.mktemp("t") / "t.jsonl"
    write_trace_file(trace(requests), path)
    assert list(read_trace_file(path).requests()) == requests


@pytest.mark.parametrize("clock", [Clock.TRACE, Clock.SESSION])
def test_samples_survive(clock: Clock, tmp_path: Path) -> None:
    """A converted sample has the requests of the sample, and its remarks."""
    source = open_trace(CONVERSATION if clock is Clock.TRACE else few_sessions(tmp_path / "in"))
    assert source.info.clock is clock
    before = list(source.requests())
    write_trace_file(source, tmp_path / "t.jsonl")
    after = open_trace(tmp_path / "t.jsonl")
    assert list(after.requests()) == before
    assert after.info == source.info
    assert after.report.remarks == source.report.remarks


def test_sharing_survives(tmp_path: Path) -> None:
    """The hit rate of an endless cache is that of the sample, which depends on the order."""
    source = open_trace(CONVERSATION)
    write_trace_file(source, tmp_path / "t.jsonl")
    assert infinite_hit_rate(open_trace(tmp_path / "t.jsonl")) == infinite_hit_rate(source)


def test_what_was_skipped_is_in_the_head(tmp_path: Path) -> None:
    """The file says what reading its source did."""
    report = ReadingReport()
    report.skipped.append("t, line 3: bad")
    report.note(Remark.SHRANK, "line 4", 2)
    write_trace_file(Trace(INFO, lambda: iter([request("a", 0, 0)]), report), tmp_path / "t")
    head = json.loads((tmp_path / "t").read_text(encoding="utf-8").splitlines()[0])
    assert head["source"]["skipped"] == ["t, line 3: bad"]
    assert head["source"]["remarks"] == [{"remark": str(Remark.SHRANK), "count": 2, "first": "line 4"}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:-1], "1 of 2 sessions are left"),
        (lambda lines: [*lines[:-1], lines[-1][:20]], "line 3: no line of a trace file"),
        (lambda lines: [lines[0], lines[1].replace("turns", "turnz"), lines[2]], "line 2: unknown key `turnz`"),
        (lambda lines: [lines[0].replace('_version":1', '_version":9'), *lines[1:]], "line 1: `schema_version`"),
    ],
)
def test_a_damaged_file_is_refused(change: object, words: str, tmp_path: Path) -> None:
    """The sentence says which line, and to convert again."""
    assert callable(change)
    path = tmp_path / "t"
    write_trace_file(trace([request("a", 0, 0), request("b", 0, 1)]), path)
    path.write_text("\n".join(change(path.read_text(encoding="utf-8").splitlines())), encoding="utf-8")
    with pytest.raises(TraceError, match=words):
        list(read_trace_file(path).requests())


def test_a_file_is_read_as_a_stream(tmp_path: Path) -> None:
    """Only sessions that have begun are held: requests come before the lines after them are read."""
    path = tmp_path / "t"
    write_trace_file(trace([request(f"s{n}", 0, float(n)) for n in range(10)]), path)
    path.write_bytes(path.read_bytes()[:-5])
    stream = read_trace_file(path).requests()
    assert [next(stream).session_id for _ in range(8)] == [f"s{n}" for n in range(8)]
    with pytest.raises(TraceError, match="line 11"):
        list(stream)


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    """An empty trace is no file; a source that breaks off leaves the earlier file."""
    path = tmp_path / "t"
    with pytest.raises(TraceError, match="no session is left"):
        write_trace_file(trace([]), path)
    assert not path.exists()
    write_trace_file(trace([request("a", 0, 0)]), path)
    before = path.read_bytes()

    def broken() -> list[TraceRequest]:
        raise TraceError("source, line 7: bad")

    with pytest.raises(TraceError, match="line 7"):
        write_trace_file(Trace(INFO, lambda: iter(broken())), path)
    assert (path.read_bytes(), is_trace_file(path)) == (before, True)
    with pytest.raises(TraceError, match=r"cannot write the trace .*No such file"):
        write_trace_file(trace([request("a", 0, 0)]), tmp_path / "no" / "t")


def test_a_shuffled_order_of_sessions_is_sorted(tmp_path: Path) -> None:
    """Sessions lie in the file by arrival, in whatever order they come."""
    numbers = list(range(200))
    random.Random(1).shuffle(numbers)
    requests = [request(f"s{number}", 0, float(number), number + 1) for number in numbers]
    write_trace_file(trace(requests), tmp_path / "t")
    found: list[TraceSession] = list(read_sessions(tmp_path / "t"))
    assert [session.start_s for session in found] == [float(number) for number in range(200)]
