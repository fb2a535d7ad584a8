"""The SSE reader: the WHATWG rules, whatever the split."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.load.sse import SseReader


def read_all(*pieces: bytes) -> list[str]:
    """Feed the pieces one by one and return all events."""
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a \n\n", [" a "]),
        (b"data: a\r\n\r\n", ["a"]),
        (b"data: a\r\r", ["a"]),
        (b"data: a\r\n\ndata: b\r\rdata: c\n\r\n", ["a", "b", "c"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", ["a\nb"]),
        (b"data\n\n", [""]),
        (b"data:\n\n", [""]),
        (b": ping\n\ndata: a\n\n:\n\n", ["a"]),
        (b"event: ping\nid: 1\nretry: 5\ndatabase: x\ndata: a\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        ("data: a\u2028b\u2029c\x0bd\x1ce\u0085\n\n".encode(), ["a\u2028b\u2029c\x0bd\x1ce\u0085"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"\n\n\n", []),
        (b"event: only\n\n", []),
    ],
)
def test_reads_as_the_rules_say(stream: bytes, events: list[str]) -> None:
    """Fields, line ends, comments and text come out as WHATWG defines them, even byte by byte."""
    assert read_all(stream) == events
    assert read_all(*(bytes([byte]) for byte in stream)) == events


def test_an_event_comes_with_the_read_that_completes_it() -> None:
    """Nothing waits for the next read, not even after a CR that could be half of a CRLF."""
    reader = SseReader()
    assert reader.feed(b"data: a\r\n\r") == ["a"]
    assert reader.feed(b"") == []
    assert reader.feed(b"\ndata: b\n") == []
    assert reader.feed(b"\n") == ["b"]


def test_an_unfinished_event_is_dropped_and_told() -> None:
    """A stream that stops inside an event gives no half event, and says so."""
    reader = SseReader()
    assert reader.feed(b"data: a\n\ndata: {") == ["a"]
    assert reader.close()
    assert not reader.close()


def test_a_huge_event_comes_out_whole() -> None:
    """An event of 1 MiB, in small reads and in one."""
    huge = b"x" * (1 << 20)
    reader = SseReader()
    reader.feed(b"data: ")
    assert [event for start in range(0, len(huge), 64) for event in reader.feed(huge[start : start + 64])] == []
    assert reader.feed(b"\n\n") == [huge.decode()]
    assert reader.feed(b"data: " + huge + b"\n\n") == [huge.decode()]


@pytest.mark.parametrize(
    "piece", [b"x" * 64, b"data: x\n", b": ping\r\n", b"data: x\n\n", b"\r", b"\xff", b"data: x\n\ndat"]
)
def test_work_is_linear_in_size(piece: bytes) -> None:
    """Twice the reads are twice the steps, whether they end lines, events or nothing."""
    small, large = steps_for(piece, 500), steps_for(piece, 1000)
    assert large <= 2 * small


def test_a_piece_is_kept_once_until_its_line_ends() -> None:
    """What the steps don't show: no step copies or scans what came before."""
    reader = SseReader()
    pieces = [b"data: "] + [b"x" * 64] * 1000
    for piece in pieces:
        reader.feed(piece)
    assert reader._line == pieces


def steps_for(piece: bytes, reads: int) -> int:
    """Count the lines of Python that reading `piece` so often takes."""
    steps = 0

    def trace(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal steps
        steps += 1
        return trace

    reader, before = SseReader(), sys.gettrace()
    sys.settrace(trace)
    try:
        for _ in range(reads):
            reader.feed(piece)
        reader.close()
    finally:
        sys.settrace(before)
    return steps


line_end = st.sampled_from([b"\n", b"\r\n", b"\r"])
text = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """Make a valid stream with one line ending, and the events in it."""
    end = draw(line_end)
    stream, events = b"", []
    for lines in draw(st.lists(st.lists(text, min_size=1, max_size=3), max_size=5)):
        stream += draw(st.sampled_from([b"", b":" + end, b": ping" + end + end, b"event: x" + end]))
        stream += b"".join(b"data: " + line.encode() + end for line in lines) + end
        events.append("\n".join(lines))
    return stream, events


@given(streams(), st.integers(min_value=1, max_value=9))
def test_any_size_of_reads_gives_the_same_events(made: tuple[bytes, list[str]], size: int) -> None:
    """Reads of any size cut between CR and LF, inside characters and between events, and change nothing."""
    stream, events = made
    assert read_all(*(stream[start : start + size] for start in range(0, len(stream), size))) == events


@given(streams(), st.lists(st.integers(min_value=0, max_value=300)))
@example((b"data: \xe6\xbd\xae\r\n\r\n", ["潮"]), [7, 8, 10, 12])
def test_any_split_gives_the_same_events(made: tuple[bytes, list[str]], cuts: list[int]) -> None:
    """However a valid stream is cut into reads, its events are the same."""
    stream, events = made
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert read_all(*pieces) == events


@given(streams(), st.data())
def test_reads_that_end_with_lines_give_the_same_events(made: tuple[bytes, list[str]], data: st.DataObject) -> None:
    """Reads of whole lines and whole events, which have a short cut of their own, change nothing either."""
    stream, events = made
    lines = stream.splitlines(keepends=True)
    cuts = [data.draw(st.booleans()) for _ in lines]
    pieces = [b""]
    for line, cut in zip(lines, cuts, strict=True):
        pieces[-1] += line
        if cut:
            pieces.append(b"")
    assert read_all(b": first\n", *pieces) == events


near_events = st.lists(
    st.sampled_from(
        [b"data: ", b"data:", b"data", b"\n\n", b"\n", b"\r", b"\r\n", b": x", b"x", b"\xe6\xbd\xae", b"\xe6", b" "]
    )
)


@given(near_events)
@example([b"data: ", b"x", b"\r", b"x", b"\n\n"])
@example([b"data: ", b"x", b"\n", b"x", b"\n\n"])
@example([b"data: ", b"x", b"\r", b"data: ", b"x", b"\n\n", b"\n"])
def test_the_short_cut_agrees_with_the_rules(parts: list[bytes]) -> None:
    """Anything near an event means the same in one read, which may take the short cut, as byte by byte, which can't."""
    stream = b"".join(parts)
    assert read_all(b"\n", stream) == read_all(b"\n", *(bytes([byte]) for byte in stream))


@given(st.binary(), st.integers(min_value=0))
def test_any_bytes_are_survived(data: bytes, cut: int) -> None:
    """Bytes of any kind raise nothing and mean the same in two reads as in one."""
    cut = cut % (len(data) + 1)
    assert read_all(data) == read_all(data[:cut], data[cut:])
