"""A server of raw bytes for tests of connections: it answers, leaves and breaks exactly when told."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
WAIT_S = 10.0


@dataclass(frozen=True)
class Step:
    """What is done with one request of a connection, once it was read whole."""

    answer: bytes = b""
    """Sent in one piece."""
    then: str = "stay"
    """`stay` for the next request, `close` as a server that has answered, or `reset` as one that crashes."""
    wait_s: float = 0.0
    """Before the answer."""


@dataclass
class WireServer:
    """Serves connections in the order in which they are opened, each by its own steps; use as a context manager.

    A connection whose steps are used up stays open until the client leaves.
    """

    connections: Sequence[Sequence[Step]]
    requests: list[list[bytes]] = field(default_factory=list)
    """What was asked, for each connection that was opened."""
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._left = [threading.Event() for _ in self.connections]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._threads: list[threading.Thread] = []
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the wait for another connection
        self._listener.close()
        if error is not None:  # a test that failed may have left its connections open
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes its thread
        for thread in [self._thread, *self._threads]:
            thread.join(WAIT_S)

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[int]:
        """How many requests came on each connection."""
        return [len(requests) for requests in self.requests]

    def wait_until_left(self, number: int) -> None:
        """Wait until the server has left connection `number`."""
        assert self._left[number].wait(WAIT_S)

    def _serve(self) -> None:
        for number, steps in enumerate(self.connections):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.requests.append([])
            self._open.append(connection)
            thread = threading.Thread(target=self._answer, args=(number, connection, steps), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, number: int, connection: socket.socket, steps: Sequence[Step]) -> None:
        if self.tls is not None:
            connection = self.tls.wrap_socket(connection, server_side=True)
        with connection:
            for step in steps:
                request = _read_request(connection)
                if not request:
                    return
                self.requests[number].append(request)
                time.sleep(step.wait_s)
                connection.sendall(step.answer)
                if step.then == "reset":  # no lingering: the kernel sends RST in place of FIN
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if step.then != "stay":
                    break
            else:
                _read_request(connection)
        self._left[number].set()


def chunk(data: bytes) -> bytes:
    """Make one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def reply(*tokens: str, headers: bytes = b"", whole: bool = True) -> bytes:
    """Make a streamed chat reply, an event a token; one that is not whole stops after its last token."""
    events = [b'{"choices":[{"delta":{"content":"%s"},"finish_reason":null}]}' % token.encode() for token in tokens]
    body = b"".join(chunk(b"data: " + event + b"\n\n") for event in events)
    end = chunk(b"data: [DONE]\n\n") + chunk(b"") if whole else b""
    return HEAD + headers + b"\r\n" + body + end


def _read_request(connection: socket.socket) -> bytes:
    """Read one request; nothing when the client has left."""
    request = b""
    while not (b"\r\n\r\n" in request and request.endswith(b"}")):
        try:
            data = connection.recv(65536)
        except ConnectionError:
            return b""
        if not data:
            return b""
        request += data
    return request
