"""Connections to the engine, each with one request at a time, read as the bytes come.

The time of a read is what is measured. So everything that has come is read before any of it is understood, the
time is taken right after each read, and a read costs neither a timer nor a switch of greenlets: the event loop
reads by itself, and wakes who waits for a response when that is over.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from gevent import get_hub
from gevent.event import Event
from geventhttpclient.response import HTTPParseError, HTTPResponse

READ_BYTES = 65536
READABLE = 1
LEFT = "the engine closed the connection inside the reply"

Take = Callable[[bytes, int], bool]
"""Takes the part of the body that was in one read, which may be empty, and the time of the read in monotonic ns; says
whether it has heard enough."""
Patience = Callable[[], float]
"""Says for how many more seconds to wait before it is asked again; raises TimeoutError when there are none."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the engine listens."""

    host: str
    port: int
    tls: bool
    prefix: str

    @classmethod
    def of(cls, base_url: str) -> Self:
        """Take a base URL apart; it is `http://` or `https://`."""
        url = urlsplit(base_url)
        tls = url.scheme == "https"
        return cls(url.hostname or "", url.port or (443 if tls else 80), tls, url.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Wire:
    """The connections to one engine: as many as there are requests at once, used again when a response was whole."""

    def __init__(self, endpoint: Endpoint, *, keep_alive: bool = True) -> None:
        self.endpoint = endpoint
        self.keep_alive = keep_alive
        self._tls = ssl.create_default_context() if endpoint.tls else None  # once: it reads all known authorities
        self._idle: list[Connection] = []
        self._reads: list[tuple[Connection, bytes | OSError, int]] = []

    def open(self, timeout_s: float) -> Connection:
        """Open a connection; raise TimeoutError or another OSError when that fails."""
        there = self.endpoint
        opened = socket.create_connection((there.host, there.port), timeout=timeout_s)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            opened = self._tls.wrap_socket(opened, server_hostname=there.host)
        return Connection(opened, self)

    def idle(self) -> Connection | None:
        """Take the connection that was used last, if there is one that the engine has not closed meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet():
                return connection
            connection.close()
        return None

    def give_back(self, connection: Connection) -> None:
        """Keep `connection` for the next request if it can serve one, else close it."""
        if self.keep_alive and connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the connections that are idle."""
        while self._idle:
            self._idle.pop().close()

    def note(self, connection: Connection, read: bytes | OSError, now_ns: int) -> None:
        """Note a read, to be understood when all connections that have something were read."""
        if not self._reads:
            get_hub().loop.run_callback(self._understand)
        self._reads.append((connection, read, now_ns))

    def _understand(self) -> None:
        reads, self._reads = self._reads, []
        for connection, read, now_ns in reads:
            connection.understand(read, now_ns)


class Connection:
    """One connection. In the load process gevent makes opening and sending cooperative; the rest is the loop's."""

    def __init__(self, opened: socket.socket, wire: Wire) -> None:
        self.reused = False
        """A request before the current one went well on it."""
        self._socket = opened
        self._wire = wire
        self._watcher = get_hub().loop.io(opened.fileno(), READABLE)
        self._response = _Response()
        self._take: Take = _ignore
        self._enough = True
        self._problem: BaseException | None = None
        self._over = Event()

    @property
    def status(self) -> int | None:
        """The HTTP status, once it is known."""
        return self._response.status

    @property
    def ended(self) -> bool:
        """Whether the response is complete."""
        return self._response.ended

    @property
    def answered(self) -> bool:
        """Whether any byte of the response has come."""
        return bool(self._response.message_begun)

    @property
    def reusable(self) -> bool:
        """Whether the response was whole and leaves the connection open for another request."""
        return self._problem is None and self._response.leaves_open

    def post(self, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> None:
        """Write a whole request; raise TimeoutError or another OSError when that fails."""
        self._response = _Response()
        there = self._wire.endpoint
        lines = [f"POST {there.prefix}{path} HTTP/1.1", f"Host: {there.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not self._wire.keep_alive:
            lines.append("Connection: close")
        lines += [f"Content-Length: {len(body)}", "", ""]
        self._socket.settimeout(timeout_s)
        self._socket.sendall("\r\n".join(lines).encode("latin-1") + body)

    def receive(self, take: Take, patience: Patience) -> None:
        """Give every read to `take` until it has enough or the response is complete.

        Raises TimeoutError when `patience` does, another OSError when the connection breaks, and what `take` raises.
        """
        self._take, self._enough = take, False
        self._over.clear()
        self._socket.setblocking(False)
        self._watcher.start(self._read)
        try:
            while not self._over.wait(patience()):
                pass
        finally:
            self._watcher.stop()
            self._enough = True
        if self._problem is not None:
            raise self._problem

    def is_quiet(self) -> bool:
        """Whether an idle connection has nothing to read: neither its end nor bytes that belong to no request."""
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.reused = True
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the connection, whatever is still to come."""
        self._socket.close()

    def understand(self, read: bytes | OSError, now_ns: int) -> None:
        """Take what was read into the response, and wake who waits for it when it is over."""
        if self._problem is not None:
            return
        try:
            if isinstance(read, OSError):
                raise read
            body = self._response.feed_and_take(read)
            if not self._enough:
                self._enough = self._take(body, now_ns)
        except Exception as problem:  # noqa: BLE001  # carried from the event loop to who waits
            self._problem = problem
        if self._enough or self._problem is not None or self._response.ended:
            self._over.set()

    def _read(self) -> None:
        """Read once; called by the event loop when there is something, until the watcher stops."""
        try:
            read: bytes | OSError = self._socket.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as problem:
            read = problem
        self._wire.note(self, read, time.monotonic_ns())


class _Response(HTTPResponse):  # type: ignore[misc]  # mypy is told to skip geventhttpclient
    """The parser of geventhttpclient without its socket, whose `read` waits until a buffer is full."""

    def __init__(self) -> None:
        super().__init__(method="POST")
        self.status: int | None = None
        self.ended = False
        self._surplus = False
        self._body = b""

    @property
    def leaves_open(self) -> bool:
        """Whether another request may follow on the connection."""
        return self.ended and not self._surplus and bool(self.should_keep_alive())

    def feed_and_take(self, data: bytes) -> bytes:
        """Take bytes in and return the body in them; no bytes mean that the engine closed, which ends some bodies."""
        try:
            self.feed(data)
        except HTTPParseError as problem:
            if not self.ended:
                raise ConnectionError(f"no HTTP: {problem}" if data else LEFT) from None
            self._surplus = True
        if not (data or self.ended):
            raise ConnectionError(LEFT)
        body, self._body = self._body, b""
        return body

    def _on_message_begin(self) -> None:
        self._surplus = self._surplus or self.ended
        super()._on_message_begin()

    def _on_headers_complete(self) -> Any:
        if not self.ended:
            self.status = self.get_code()
        return super()._on_headers_complete()

    def _on_body(self, data: bytes) -> None:
        if not self._surplus:
            self._body = self._body + data if self._body else bytes(data)

    def _on_message_complete(self) -> None:
        super()._on_message_complete()
        self.ended = self.ended or self.get_code() >= 200


def _ignore(_body: bytes, _now_ns: int) -> bool:
    return True
