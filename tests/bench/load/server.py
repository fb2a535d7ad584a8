"""A scripted chat server as light as Python allows, which knows when it wrote each token.

`python -m tests.bench.load.server SCRIPT.json TRUTH.json` prints its port, serves until its stdin closes, then
writes the truth. One epoll loop, no framework, chunks made once for all: it must never be the bottleneck, and says
how late it was itself.
"""

from __future__ import annotations

import heapq
import json
import re
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

KEY = re.compile(rb"request-(\d{6})")
LENGTH = re.compile(rb"[Cc]ontent-[Ll]ength: *(\d+)")
MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": *(\d+)')
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
ID = '"id":"da5d7b7204f140a1a3e177439ccb5ed2","object":"chat.completion.chunk","created":1796021737,"model":"m"'


@dataclass(frozen=True)
class Script:
    """How every request is answered."""

    gap_s: float
    """Between two tokens of a stream."""
    first_token_s: tuple[float, float] = (0.02, 0.12)
    """Range of the time to the first token; where in it, the key of the request says."""
    spread: int = 0
    spread_s: float = 0.0
    """The first `spread` requests wait up to so much longer, evenly: slots that begin at once would go on in step."""


@dataclass(slots=True)
class Truth:
    """One request as the server saw it, in ns of CLOCK_MONOTONIC."""

    key: int
    received_ns: int
    first_write_ns: int = 0
    """Just before the first token went to the kernel."""
    last_write_ns: int = 0
    tokens: int = 0


@dataclass
class Report:
    """What the server knows after a load."""

    truths: list[Truth] = field(default_factory=list)
    late_p50_ms: float = 0.0
    late_p99_ms: float = 0.0
    """How much later than scripted tokens were written: the server's own share of being slow."""
    short_writes: int = 0
    """Writes that the kernel did not take whole, because the client did not read."""

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read what `main` wrote."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**raw, "truths": [Truth(**truth) for truth in raw["truths"]]})


def choice(delta: str | None) -> str:
    """Write a choice as SGLang 0.5.15 does; None is the one with the finish reason."""
    more, reason = ("", '"length"') if delta is None else ("," + delta, "null")
    return (
        f'{{"index":0,"delta":{{"reasoning_content":null{more}}},"logprobs":null,"finish_reason":{reason},'
        '"matched_stop":null}'
    )


def event(fields: str) -> bytes:
    """Write one event in an HTTP chunk of its own."""
    return chunk(f"data: {{{ID},{fields}}}\n\n".encode())


def chunk(data: bytes) -> bytes:
    """Write one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def first_token(key: int) -> bytes:
    """Write the first token, which tells the key to clients that keep texts."""
    return event('"choices":[' + choice(f'"content":"request-{key:06d}"') + "]")


def ending(tokens: int) -> bytes:
    """Write what follows the last token on its heels: finish reason, usage, end mark, end of the response."""
    usage = f'"usage":{{"prompt_tokens":18,"total_tokens":{18 + tokens},"completion_tokens":{tokens}}}'
    finish = event('"choices":[' + choice(None) + "]")
    return finish + event(f'"choices":[],{usage}') + chunk(b"data: [DONE]\n\n") + chunk(b"")


ROLE = event('"choices":[' + choice('"role":"assistant","content":""') + "]")
TOKEN = event('"choices":[' + choice('"content":" token"') + "]")


class Connection:
    """One client connection; it answers one request at a time."""

    __slots__ = ("due_ns", "inbox", "outbox", "socket", "truth", "written")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.inbox = b""
        self.outbox = b""
        self.truth: Truth | None = None
        self.written = 0
        """Tokens of the current reply."""
        self.due_ns = 0
        """When the next one is scripted."""


class Server:
    """Answers on a loopback port; `serve` returns when stdin closes."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._report = Report()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self._poll = select.epoll()
        self._open: dict[int, Connection] = {}
        self._first: list[tuple[int, int, Connection]] = []  # a heap: first tokens, by when they are due
        self._later: deque[Connection] = deque()  # in order by itself: all later tokens come after the same gap
        self._gap_ns = round(script.gap_s * 1e9)
        self._late_ns: list[int] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def serve(self) -> Report:
        """Serve until stdin closes; return what was seen."""
        listener, stdin = self._listener.fileno(), sys.stdin.fileno()
        self._poll.register(listener, select.EPOLLIN)
        self._poll.register(stdin, select.EPOLLIN)
        while True:
            # Select sleeps in us, where epoll rounds up to whole ms.
            select.select([self._poll], [], [], self._wait_s())
            for fd, event in self._poll.poll(0):
                if fd == stdin:
                    return self._summed_up()
                if fd == listener:
                    self._accept()
                else:
                    self._attend(self._open[fd], event)
            self._write_due()

    def _wait_s(self) -> float:
        due_ns = [self._first[0][0]] if self._first else []
        due_ns += [self._later[0].due_ns] if self._later else []
        return max(0, min(due_ns) - time.monotonic_ns()) / 1e9 if due_ns else 1.0

    def _summed_up(self) -> Report:
        if self._late_ns:
            p50, p99 = np.percentile(self._late_ns, [50, 99]) / 1e6
            self._report.late_p50_ms, self._report.late_p99_ms = float(p50), float(p99)
        return self._report

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open[accepted.fileno()] = Connection(accepted)
            self._poll.register(accepted.fileno(), select.EPOLLIN)

    def _attend(self, connection: Connection, event: int) -> None:
        if event & select.EPOLLOUT:
            self._send(connection, b"")
        if not event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data = connection.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if data:
            connection.inbox += data
            self._answer(connection)
        else:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        if (fd := connection.socket.fileno()) >= 0:
            self._poll.unregister(fd)
            del self._open[fd]
            connection.socket.close()

    def _answer(self, connection: Connection) -> None:
        head, end, body = connection.inbox.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not end or (length and len(body) < int(length[1])):
            return
        connection.inbox = b""
        asked = MAX_TOKENS.search(body)
        if not head.startswith(b"POST") or asked is None:
            self._send(connection, _plain(b'{"object":"list","data":[{"id":"m","object":"model"}]}'))
            return
        named = KEY.search(body)
        key = int(named[1]) if named else -1
        connection.truth = Truth(key, time.monotonic_ns(), tokens=int(asked[1]))
        self._report.truths.append(connection.truth)
        low_s, high_s = self._script.first_token_s
        first_s = low_s + (high_s - low_s) * (key * 0.6180339887 % 1)
        if (place := len(self._report.truths)) <= self._script.spread:
            first_s += self._script.spread_s * place / self._script.spread
        connection.written = 0
        connection.due_ns = connection.truth.received_ns + round(first_s * 1e9)
        self._send(connection, HEAD + ROLE)
        heapq.heappush(self._first, (connection.due_ns, connection.socket.fileno(), connection))

    def _write_due(self) -> None:
        first, later = self._first, self._later
        while first and first[0][0] <= (now_ns := time.monotonic_ns()):
            connection = heapq.heappop(first)[2]
            if connection.truth is not None and connection.socket.fileno() >= 0:
                connection.truth.first_write_ns = now_ns
                self._write(connection, first_token(connection.truth.key), now_ns)
        while later and later[0].due_ns <= (now_ns := time.monotonic_ns()):
            connection = later.popleft()
            if connection.truth is not None and connection.socket.fileno() >= 0:
                self._write(connection, TOKEN, now_ns)
            if first and first[0][0] <= now_ns:
                return  # its time is the truth, so it must not wait behind many others

    def _write(self, connection: Connection, chunk: bytes, now_ns: int) -> None:
        truth = connection.truth
        assert truth is not None
        self._late_ns.append(now_ns - connection.due_ns)
        connection.written += 1
        if connection.written < truth.tokens:
            connection.due_ns += self._gap_ns
            self._later.append(connection)
        else:
            truth.last_write_ns = now_ns
            chunk += ending(truth.tokens)
        self._send(connection, chunk)

    def _send(self, connection: Connection, data: bytes) -> None:
        data = connection.outbox + data
        try:
            sent = connection.socket.send(data)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            self._close(connection)
            return
        if sent == len(data) and not connection.outbox:
            return
        connection.outbox = data[sent:]
        self._report.short_writes += 1
        waits = select.EPOLLOUT if connection.outbox else 0
        self._poll.modify(connection.socket.fileno(), select.EPOLLIN | waits)


def _plain(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def main() -> None:
    """Serve the script named on the command line."""
    script = Script(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    server = Server(script)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    Path(sys.argv[2]).write_text(json.dumps(asdict(server.serve())), encoding="utf-8")


if __name__ == "__main__":
    main()
