"""The SSE reader: the WHATWG rules, whatever the split."""

from __future__ import annotations

from itertools import pairwise

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


def test_a_huge_event_is_read_in_linear_time() -> None:
    """An event of 1 MiB in small reads keeps each piece once: no piece is scanned or copied again before its end."""
    reader = SseReader()
    reader.feed(b"data: ")
    for _ in range(1 << 14):
        assert reader.feed(b"x" * 64) == []
    assert len(reader._line) == (1 << 14) + 1
    assert reader.feed(b"\n\n") == ["x" * (1 << 20)]


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


@given(st.binary(), st.integers(min_value=0))
def test_any_bytes_are_survived(data: bytes, cut: int) -> None:
    """Bytes of any kind raise nothing and mean the same in two reads as in one."""
    cut = cut % (len(data) + 1)
    assert read_all(data) == read_all(data[:cut], data[cut:])
