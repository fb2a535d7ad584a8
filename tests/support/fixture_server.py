"""A scripted streaming server on loopback that measures our own client: it knows the truth of each request.

It stands in for no engine. It runs in a thread of the test process, which no gevent touches.
"""

from __future__ import annotations

import asyncio
import enum
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


class Ending(enum.Enum):
    """How the server ends a stream after its tokens."""

    WHOLE = enum.auto()
    NO_DONE = enum.auto()
    """A finish reason, but no [DONE]."""
    TRUNCATED = enum.auto()
    """A clean end of the response in the middle of the reply."""
    ERROR = enum.auto()
    """An error object, then [DONE]."""
    DROP = enum.auto()
    """The connection breaks."""
    HANG = enum.auto()
    """Nothing more comes, not even the end."""


@dataclass(frozen=True)
class Script:
    """What the server does with one request."""

    tokens: tuple[str, ...] = ("one ", "two ", "three")
    first_token_s: float = 0.0
    gap_s: float = 0.0
    ending: Ending = Ending.WHOLE
    http_status: int = 200
    cached: tuple[int, int] = (0, 0)
    """Device and host tokens, reported as SGLang does."""
    keep_alive_s: float | None = None
    """Send comments this often until the first token."""
    freeze_s: float = 0.0
    """Stop the whole server for this long before anything else happens."""


@dataclass
class Seen:
    """One request as the server saw it; times are monotonic nanoseconds."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    received_ns: int
    unfrozen_ns: int = 0
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    client_left: bool = False
    """The client closed the connection before the end of the reply."""

    @property
    def first_words(self) -> str:
        """The first user message or token id: tests use it to tell sessions apart."""
        if "messages" in self.body:
            return next(str(m["content"]) for m in self.body["messages"] if m["role"] == "user")
        return str(self.body["input_ids"][0])


@dataclass
class FixtureServer:
    """Answers each request as `script` says; use as a context manager."""

    script: Callable[[Seen], Script] = field(default=lambda _: Script())
    seen: list[Seen] = field(default_factory=list)
    port: int = 0

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def die(self) -> None:
        """Stop listening and break every connection, as an engine that crashes does."""
        asyncio.run_coroutine_threadsafe(self._die(), self._loop).result()

    async def _die(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        mine = list(self._tasks)
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            seen = await _request(reader)
            try:
                await self._answer(seen, writer)
            except ConnectionError:
                seen.client_left = True
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            writer.close()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        self.seen.append(seen)
        script = self.script(seen)
        time.sleep(script.freeze_s)
        seen.unfrozen_ns = time.monotonic_ns()
        if script.http_status != 200:
            body = json.dumps({"error": {"message": "the queue is full"}}).encode()
            head = f"HTTP/1.1 {script.http_status} Refused\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        stream = _ChatStream(writer, script) if "messages" in seen.body else _GenerateStream(writer, script, seen)
        await stream.open()
        await _wait(script, writer)
        for number in range(len(script.tokens)):
            if number:
                await asyncio.sleep(script.gap_s)
            seen.last_token_ns = time.monotonic_ns()
            seen.first_token_ns = seen.first_token_ns or seen.last_token_ns
            await stream.token(number)
        await _end(script, stream, writer)


class _Stream:
    def __init__(self, writer: asyncio.StreamWriter, script: Script) -> None:
        self.writer = writer
        self.script = script

    async def event(self, chunk: dict[str, Any]) -> None:
        await send_chunk(self.writer, f"data: {json.dumps(chunk)}\n\n".encode())

    async def open(self) -> None:
        """Send what comes before any token."""

    async def token(self, number: int) -> None:
        """Send one token."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Send the finish reason and the counts."""
        raise NotImplementedError


class _ChatStream(_Stream):
    async def open(self) -> None:
        await self._delta({"role": "assistant", "content": "", "reasoning_content": None})

    async def token(self, number: int) -> None:
        await self._delta({"content": self.script.tokens[number]})

    async def finish(self) -> None:
        await self._delta({}, "length")
        device, host = self.script.cached
        if device + host:
            await self.event({"choices": [], "sglext": {"cached_tokens_details": {"device": device, "host": host}}})
        details = {"cached_tokens": device + host} if device + host else None
        count = len(self.script.tokens)
        usage = {"prompt_tokens": 100, "completion_tokens": count, "prompt_tokens_details": details}
        await self.event({"choices": [], "usage": usage})

    async def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> None:
        await self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


class _GenerateStream(_Stream):
    def __init__(self, writer: asyncio.StreamWriter, script: Script, seen: Seen) -> None:
        super().__init__(writer, script)
        self.prompt_tokens = len(seen.body["input_ids"])

    async def token(self, number: int) -> None:
        await self._chunk(number + 1, None)

    async def finish(self) -> None:
        await self._chunk(len(self.script.tokens), {"type": "length"})

    async def _chunk(self, count: int, finish_reason: dict[str, str] | None) -> None:
        device, host = self.script.cached
        meta = {
            "finish_reason": finish_reason,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": count,
            "cached_tokens": device + host,
            "cached_tokens_details": {"device": device, "host": host} if device + host else None,
        }
        ids = list(range(900, 900 + count))
        await self.event({"text": "".join(self.script.tokens[:count]), "output_ids": ids, "meta_info": meta})


async def send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write one HTTP chunk."""
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


async def _wait(script: Script, writer: asyncio.StreamWriter) -> None:
    left_s = script.first_token_s
    while script.keep_alive_s is not None and left_s > 0:
        await asyncio.sleep(script.keep_alive_s)
        await send_chunk(writer, b": still here\n\n")
        left_s -= script.keep_alive_s
    await asyncio.sleep(max(0.0, left_s))


async def _end(script: Script, stream: _Stream, writer: asyncio.StreamWriter) -> None:
    if script.ending is Ending.DROP:
        writer.transport.abort()
        return
    if script.ending is Ending.HANG:
        await asyncio.sleep(3600)
    if script.ending is Ending.ERROR:
        await stream.event({"error": {"message": "scheduler stopped", "code": 500}})
    elif script.ending in (Ending.WHOLE, Ending.NO_DONE):
        await stream.finish()
    if script.ending in (Ending.WHOLE, Ending.ERROR):
        await send_chunk(writer, b"data: [DONE]\n\n")
    await send_chunk(writer, b"")


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    body = json.loads(await reader.readexactly(int(headers["content-length"])))
    return Seen(head[0].split(" ")[1], headers, body, time.monotonic_ns())
