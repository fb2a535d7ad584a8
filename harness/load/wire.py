"""One POST on a connection of its own, read as the bytes come.

Plain sockets, because the time of each read is what is measured: a read returns as soon as bytes are there,
and nothing is retried. In the load process gevent makes them cooperative. A connection serves one request, so
an idle one that the engine closes (uvicorn does after 5 s) can never count as a failure.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from geventhttpclient.response import HTTPParseError, HTTPResponse

READ_BYTES = 65536
DRAIN_S = 1.0
LEFT = "the engine closed the connection inside the reply"


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


class HttpStream:
    """A request and its streamed response. Raises TimeoutError when a limit passes, else OSError."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._socket: socket.socket | None = None
        self._response = _Response()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def connect(self, timeout_s: float) -> None:
        """Open the connection."""
        there = self._endpoint
        plain = socket.create_connection((there.host, there.port), timeout=timeout_s)
        self._socket = plain
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if there.tls:
            self._socket = ssl.create_default_context().wrap_socket(plain, server_hostname=there.host)

    def post(self, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> None:
        """Write the whole request."""
        lines = [f"POST {self._endpoint.prefix}{path} HTTP/1.1", f"Host: {self._endpoint.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += ["Connection: close", f"Content-Length: {len(body)}", "", ""]
        connection = self._open()
        connection.settimeout(timeout_s)
        connection.sendall("\r\n".join(lines).encode("latin-1") + body)

    def read(self, timeout_s: float) -> bytes:
        """Wait for one read and return the part of the body in it, which may be empty."""
        connection = self._open()
        connection.settimeout(timeout_s)
        data = connection.recv(READ_BYTES)
        try:
            self._response.feed(data)  # no data tells it that the engine closed, which ends some bodies
        except HTTPParseError as problem:
            raise ConnectionError(f"no HTTP: {problem}" if data else LEFT) from None
        if not (data or self.ended):
            raise ConnectionError(LEFT)
        return self._response.take()

    @property
    def status(self) -> int | None:
        """The HTTP status, once it is known."""
        return self._response.get_code() if self._response.headers_complete else None

    @property
    def ended(self) -> bool:
        """Whether the response is complete."""
        return bool(self._response.message_complete and self._response.get_code() >= 200)

    def drain(self) -> None:
        """Let the engine write its last bytes: closing earlier would look to it like a user who left."""
        until = time.monotonic() + DRAIN_S
        try:
            while not self.ended and (left_s := until - time.monotonic()) > 0:
                self.read(left_s)
        except OSError:
            return

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("not connected")
        return self._socket


class _Response(HTTPResponse):  # type: ignore[misc]  # mypy is told to skip geventhttpclient
    """The parser of geventhttpclient without its socket, whose `read` waits until a buffer is full."""

    def __init__(self) -> None:
        super().__init__(method="POST")
        self._parts: list[bytes] = []

    def _on_body(self, data: bytes) -> None:
        self._parts.append(bytes(data))

    def take(self) -> bytes:
        body = b"".join(self._parts)
        self._parts.clear()
        return body
