"""What a reply makes of its events, by the cases from public bug reports and beyond them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.load.reply import ChatReply, GenerateReply, Reply
from harness.load.sse import SseReader
from tests.support.cases import expected, socket_reads

MS = 1_000_000
FRAGMENTS = [
    *(b"data: ", b"data:", b"\n", b"\n\n", b"\r\n", b": ping\n", b"[DONE]", b"null", b"1e999", b"[]", b"{}", b"\xff"),
    *(b'{"choices":', b'[{"delta":', b'{"content":"x"}', b"}]}", b'{"error":', b'"bad"}', b'{"usage":{}}', b"NaN"),
    *(b'{"text":"a","output_ids":[1],"meta_info":', b'{"completion_tokens":1}}'),
]


def replay(number: str) -> ChatReply:
    """Feed the recorded reads of a case to a chat reply, with their times."""
    reader, reply = SseReader(), ChatReply()
    for t_ms, data in socket_reads(number):
        for event in reader.feed(data):
            reply.feed(event, t_ms * MS)
    return reply


def feed(reply: Reply, *chunks: Any) -> Reply:
    """Feed chunks at 1 ms, 2 ms, ..."""
    for number, chunk in enumerate(chunks, 1):
        reply.feed(chunk if isinstance(chunk, str) else json.dumps(chunk), number * MS)
    return reply


def chat(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """Make a chat chunk."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def generate(ids: list[int], count: int, text: str = "", **meta: Any) -> dict[str, Any]:
    """Make a chunk of /generate."""
    return {"text": text, "output_ids": ids, "meta_info": {"completion_tokens": count, **meta}}


@pytest.mark.parametrize("number", ["01", "03", "05", "07", "12"])
def test_case_of_a_good_stream(number: str) -> None:
    """Each recorded stream gives the TTFT, text, counts and gaps that its case demands."""
    reply, want = replay(number), expected(number)
    times_ns = reply.delta_times_ns
    gaps_ms = [(b - a) / MS for a, b in pairwise(times_ns)]
    got = {
        "status": "ok" if reply.problem() is None else "failed",
        "ttft_ms": times_ns[0] / MS,
        "text": reply.text,
        "output_tokens": reply.output_tokens,
        "prompt_tokens": reply.prompt_tokens,
        "cached_tokens": reply.cached_tokens,
        "chunks": len(times_ns),
        "itl_ms": gaps_ms,
        "tpot_ms": (times_ns[-1] - times_ns[0]) / MS / max(1, (reply.output_tokens or 0) - 1),
    }
    wanted = {key: value for key, value in want.items() if key != "note"}
    assert {key: got[key] for key in wanted} == wanted


def test_case_03_usage_does_not_move_the_last_token() -> None:
    """The usage chunk at 290 ms leaves the last token at 150 ms."""
    assert replay("03").delta_times_ns[-1] == 150 * MS


def test_case_09_error_inside_a_200_stream() -> None:
    """An error object fails the request, keeps the partial text, and says what the server said."""
    reply, want = replay("09"), expected("09")
    assert want["error_contains"] in (reply.problem() or "")
    assert reply.text == "partial"


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"content": None, "reasoning_content": "hm"},
        {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ],
)
def test_any_kind_of_token_stops_the_clock(delta: dict[str, Any]) -> None:
    """Text, reasoning and tool calls are tokens."""
    assert feed(ChatReply(), chat({"role": "assistant", "content": ""}), chat(delta)).delta_times_ns == [2 * MS]


@pytest.mark.parametrize(
    "event",
    [
        "",
        " ",
        "[DONE]",
        chat({"role": "assistant", "content": ""}),
        chat({"content": None, "reasoning_content": None, "tool_calls": None}),
        chat({"tool_calls": [{"index": 0, "function": {"name": None, "arguments": ""}}]}),
        chat({}, "stop"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 0}},
        {"choices": [], "sglext": {"cached_tokens_details": {"device": 1, "host": 0}}},
    ],
)
def test_what_is_no_token_does_not_stop_the_clock(event: Any) -> None:
    """Role chunks, keep-alives, usage, cache details and the end mark are no tokens."""
    assert feed(ChatReply(), event).delta_times_ns == []


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([chat({"content": "x"}), chat({}, "length"), "[DONE]"], None),
        ([chat({"content": "x"}), chat({}, "length")], None),
        ([chat({"content": "x"}), "[DONE]"], None),
        ([chat({"content": "x"})], "ended before"),
        ([], "ended before"),
        ([chat({}, "stop"), "[DONE]"], "without a token"),
        ([chat({"content": "x"}), chat({}, "abort")], "abort"),
        ([chat({"content": "x"}), "{not json"], "not JSON"),
        ([chat({"content": "x"}), "[1]"], "not a JSON object"),
        ([{"object": "error", "message": "too long"}], "too long"),
        ([{"error": "flat"}], "flat"),
    ],
)
def test_when_a_reply_is_whole(events: list[Any], problem: str | None) -> None:
    """A reply needs a token and either its finish reason or its end mark; anything else is a failure with a reason."""
    got = feed(ChatReply(), *events).problem()
    assert got is None if problem is None else problem in (got or "")


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        ([{"reasoning_content": "hm"}, {"reasoning_content": " so"}], ""),
        ([{"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]}], ""),
        ([{"content": "one two three"}, {"content": " four five"}], "one two three four five"),
    ],
    ids=["reasoning only", "tool call only", "several tokens a chunk"],
)
def test_streams_without_plain_tokens_are_whole(deltas: list[dict[str, Any]], text: str) -> None:
    """Reasoning alone, a tool call alone and deltas of several tokens are replies; the engine counts the tokens."""
    end = [chat({}, "stop"), {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 5}}, "[DONE]"]
    reply = feed(ChatReply(), chat({"role": "assistant", "content": ""}), *map(chat, deltas), *end)
    assert reply.problem() is None
    assert (reply.text, len(reply.delta_times_ns), reply.output_tokens) == (text, len(deltas), 5)


@pytest.mark.parametrize(
    "event",
    [
        '{"choices": [{"delta": {"content": "x"}, "logprobs": NaN}]}',
        '{"choices": [{"delta": {"content": "\\ud83d"}}]}',
        '{"choices": [{"delta": {"content": "x"}}], "seed": 123456789012345678901234567890}',
    ],
    ids=["NaN", "half a surrogate pair", "a large number"],
)
def test_what_only_a_lenient_reader_takes_is_a_token(event: str) -> None:
    """Servers in Python write what strict JSON has not."""
    assert feed(ChatReply(), event).delta_times_ns == [MS]


@pytest.mark.parametrize("event", ["[" * 100_000, '{"a":' * 100_000, "nul", "\ud83d", "{" + '"a":1,' * 10])
def test_what_nobody_can_read_is_a_failure(event: str) -> None:
    """Endless nesting and broken JSON fail the request and nothing else."""
    assert "not JSON" in (feed(ChatReply(), event).problem() or "")


@given(st.binary() | st.lists(st.sampled_from(FRAGMENTS)).map(b"".join), st.integers(min_value=1, max_value=9))
def test_any_bytes_of_a_stream_are_survived(stream: bytes, size: int) -> None:
    """Bytes of any kind, in reads of any size, through reader and reply: each of the two APIs ends with a verdict."""
    for reply in (ChatReply(), GenerateReply()):
        reader = SseReader()
        for start in range(0, len(stream), size):
            for event in reader.feed(stream[start : start + size]):
                reply.feed(event, start)
        assert reply.problem() is None or reply.problem()


def test_nothing_is_taken_after_the_end() -> None:
    """Events behind [DONE] or behind an error change nothing."""
    reply = feed(ChatReply(), chat({"content": "x"}), "[DONE]", chat({"content": "y"}), {"error": "late"})
    assert (reply.text, reply.problem()) == ("x", None)


def cache_of(reply: Reply) -> tuple[int | None, ...]:
    """Return cached tokens: all, device, host, storage."""
    return (
        reply.cached_tokens,
        reply.device_cached_tokens,
        reply.host_cached_tokens,
        reply.storage_cached_tokens,
    )


def usage(cached: int | None) -> dict[str, Any]:
    """Make a usage chunk as SGLang does: no details when nothing was cached or reported."""
    details = None if cached is None else {"cached_tokens": cached}
    return {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": details}}


def tiers(**details: Any) -> dict[str, Any]:
    """Make the chunk with cache details by tier."""
    return {"choices": [], "sglext": {"cached_tokens_details": details}}


@pytest.mark.parametrize(
    ("events", "known", "cache"),
    [
        ([usage(None)], False, (None, None, None, None)),
        ([usage(None)], True, (0, 0, 0, 0)),
        ([usage(0)], False, (0, 0, 0, 0)),
        ([usage(7)], False, (7, None, None, None)),
        ([tiers(device=5, host=2), usage(7)], False, (7, 5, 2, 0)),
        ([tiers(device=5, host=2), usage(None)], True, (7, 5, 2, 0)),
        ([tiers(device=5, host=2, storage=3, storage_backend="F"), usage(10)], False, (10, 5, 2, 3)),
        ([], True, (None, None, None, None)),
    ],
)
def test_cached_tokens_of_a_chat_reply(events: list[Any], known: bool, cache: tuple[int | None, ...]) -> None:
    """Tiers come from the extension chunk; absent means unknown unless the engine is known to report."""
    assert cache_of(feed(ChatReply(absent_cache_means_zero=known), *events)) == cache


@pytest.mark.parametrize(
    ("meta", "cache"),
    [
        ({"cached_tokens": 0, "cached_tokens_details": None}, (0, 0, 0, 0)),
        ({"cached_tokens": 16, "cached_tokens_details": {"device": 16, "host": 0}}, (16, 16, 0, 0)),
        ({"cached_tokens": 9, "cached_tokens_details": {"device": 1, "host": 3, "storage": 5}}, (9, 1, 3, 5)),
        ({"cached_tokens": 9}, (9, None, None, None)),
        ({}, (None, None, None, None)),
    ],
)
def test_cached_tokens_of_a_generate_reply(meta: dict[str, Any], cache: tuple[int | None, ...]) -> None:
    """Tiers come from the meta info; no details beside 0 cached tokens means 0 everywhere."""
    assert cache_of(feed(GenerateReply(), generate([5], 1, "a", **meta))) == cache


@pytest.mark.parametrize("incremental", [False, True])
@given(ids=st.lists(st.integers(0, 2), min_size=3, max_size=12))
def test_generate_with_whole_or_incremental_chunks(incremental: bool, ids: list[int]) -> None:
    """The same ids and text come out whether chunks repeat everything or carry the news only."""
    reply = GenerateReply()
    for count in range(1, len(ids) + 1):
        start = count - 1 if incremental else 0
        part = ids[start:count]
        feed(reply, generate(part, count, "".join(map(str, part))))
    assert reply.token_ids == ids
    assert reply.text == "".join(map(str, ids))
    assert len(reply.delta_times_ns) == len(ids)


def test_generate_repeats_without_news_are_no_tokens() -> None:
    """The last chunk often repeats the reply with its finish reason: that adds no token."""
    end = generate([5, 6], 2, "ab", finish_reason={"type": "length", "length": 2})
    reply = feed(GenerateReply(), generate([5], 1, "a"), generate([5, 6], 2, "ab"), end, "[DONE]")
    assert (reply.delta_times_ns, reply.problem()) == ([MS, 2 * MS], None)


def test_generate_abort_is_a_failure_with_its_message() -> None:
    """An abort reason inside the meta info fails the request."""
    abort = generate([5], 1, "a", finish_reason={"type": "abort", "message": "out of memory"})
    assert "out of memory" in (feed(GenerateReply(), abort).problem() or "")


KEYS = [
    *("choices", "delta", "content", "usage", "sglext", "cached_tokens_details", "meta_info", "error", "text"),
    *("output_ids", "finish_reason", "tool_calls", "function", "prompt_tokens_details", "completion_tokens"),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values | st.text(), max_size=4))
def test_no_event_breaks_a_reply(events: list[Any]) -> None:
    """Events of any shape raise nothing: what is not understood is no token."""
    for reply in (ChatReply(), GenerateReply()):
        feed(reply, *events)
        reply.problem()
