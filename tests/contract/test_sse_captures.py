"""Our reader against streams that real SGLang 0.5.15 engines sent (CPU and H200)."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.load.reply import ChatReply, GenerateReply, Reply
from harness.load.sse import SseReader
from tests.support.cases import DATA

pytestmark = pytest.mark.contract

CAPTURES = sorted((DATA / "sse").glob("*.sse"))


def read(path: Path, size: int) -> Reply:
    """Read a capture in pieces of `size` bytes, counting pieces as nanoseconds."""
    capture = path.read_bytes()
    body = capture.partition(b"\r\n\r\n")[2] if capture.startswith(b"HTTP/") else capture
    reader, reply = SseReader(), GenerateReply() if "generate" in path.name else ChatReply()
    for now_ns, start in enumerate(range(0, len(body), size)):
        for event in reader.feed(body[start : start + size]):
            reply.feed(event, now_ns)
    return reply


def cache_of(reply: Reply) -> tuple[int | None, ...]:
    """Return cached tokens: all, device, host, storage."""
    tiers = (reply.device_cached_tokens, reply.host_cached_tokens, reply.storage_cached_tokens)
    return (reply.cached_tokens, *tiers)


@pytest.mark.parametrize("size", [1, 7, 65536])
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_every_capture_is_a_whole_reply(path: Path, size: int) -> None:
    """Each capture is a good reply of 8 tokens, whatever the size of the reads."""
    reply = read(path, size)
    assert reply.problem() is None
    assert (reply.done, reply.finished, reply.output_tokens) == (True, True, 8)
    assert reply.prompt_tokens in {18, 24, 38}
    assert 0 < len(reply.delta_times_ns) <= 8
    assert reply.text


def test_captures_are_there() -> None:
    """Both APIs, both machines: a missing folder must not pass as no failures."""
    assert len(CAPTURES) == 13


@pytest.mark.parametrize(
    ("name", "cache"),
    [
        ("h200-0.5.15-chat_stream", (None, None, None, None)),
        ("cpu-0.5.15-hicache_l3_ps16-chat_stream_cold", (None, None, None, None)),
        ("cpu-0.5.15-hicache_l3_ps16-chat_stream_warm", (32, None, None, None)),
        ("cpu-0.5.15-hicache_l3_ps16-generate_stream", (16, 16, 0, 0)),
        ("cpu-0.5.15-hicache_ps1-generate_stream", (23, 23, 0, 0)),
        ("cpu-0.5.15-hicache_ps1-chat_stream_warm", (37, None, None, None)),
        ("cpu-0.5.15-vanilla_nohicache_ps1-generate_stream", (23, 23, 0, 0)),
    ],
)
def test_cached_tokens_as_the_engine_reported_them(name: str, cache: tuple[int | None, ...]) -> None:
    """Without the request's extension field a chat reply leaves tiers, and zeros, unknown."""
    assert cache_of(read(DATA / "sse" / f"{name}.sse", 65536)) == cache


def test_the_role_chunk_does_not_stop_the_clock() -> None:
    """In a real chat stream the first token is the second event, after the role chunk."""
    path = DATA / "sse" / "h200-0.5.15-chat_stream.sse"
    reply = read(path, 1)
    text = path.read_text(encoding="utf-8")
    assert text[: reply.delta_times_ns[0]].count("data: ") == 2
    assert reply.text.startswith(" y lon")


def test_generate_streams_grow_by_their_ids() -> None:
    """Chunks of /generate repeat the whole reply; the history gets each id once."""
    reply = read(DATA / "sse" / "cpu-0.5.15-hicache_ps1-generate_stream.sse", 65536)
    assert reply.token_ids == [1506, 16] * 4
    assert reply.text == "icit." * 4
