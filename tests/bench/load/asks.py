"""What the small clients of other HTTP stacks share: which requests to make, and how their replies are read.

All read with our own SSE reader and reply, so that only the stack differs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.load.reply import ChatReply
from harness.load.sse import SseReader
from tests.bench.load.words import prompt

CHAT = "/v1/chat/completions"
HEADERS = {"Content-Type": "application/json"}


@dataclass
class Task:
    """What is left to ask, and what was seen so far."""

    url: str
    streams: int
    tokens: int
    requests: int
    seen: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Of each whole reply: key, sent, first token (ns of CLOCK_MONOTONIC), non-empty deltas."""

    def __post_init__(self) -> None:
        self._keys = iter(range(self.requests))

    def asks(self) -> Iterator[Ask]:
        """Yield requests for one slot until none are left for any."""
        for key in self._keys:
            yield Ask(self, key)


class Ask:
    """One request: its body, and the reply as it comes."""

    def __init__(self, task: Task, key: int) -> None:
        asked = {"model": "m", "stream": True, "max_tokens": task.tokens}
        self.body = json.dumps({**asked, "messages": [{"role": "user", "content": prompt(key)}]}).encode()
        self._task, self._key = task, key
        self._reader, self._reply = SseReader(), ChatReply()
        self._sent_ns = time.monotonic_ns()

    def hear(self, data: bytes) -> None:
        """Take what was read."""
        now_ns = time.monotonic_ns()
        for event in self._reader.feed(data):
            self._reply.feed(event, now_ns)

    def end(self) -> None:
        """Note what was seen, if the reply is whole."""
        times_ns = self._reply.delta_times_ns
        if self._reply.problem() is None:
            self._task.seen.append((self._key, self._sent_ns, times_ns[0], len(times_ns)))


def play_as_told(stacks: dict[str, Callable[[Task], None]]) -> None:
    """Play as the command line says: STACK URL STREAMS TOKENS REQUESTS SEEN.json."""
    stack, url, streams, tokens, requests, out = sys.argv[1:]
    task = Task(url, int(streams), int(tokens), int(requests))
    stacks[stack](task)
    Path(out).write_text(json.dumps(task.seen), encoding="utf-8")
