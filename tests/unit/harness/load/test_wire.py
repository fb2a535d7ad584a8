"""The connection: addresses, and answers that are no HTTP."""

from __future__ import annotations

import socket
import threading

import pytest

from harness.load.wire import Endpoint, HttpStream


@pytest.mark.parametrize(
    ("url", "endpoint", "authority"),
    [
        ("http://127.0.0.1:30000", Endpoint("127.0.0.1", 30000, False, ""), "127.0.0.1:30000"),
        ("http://box/engine/", Endpoint("box", 80, False, "/engine"), "box:80"),
        ("https://box", Endpoint("box", 443, True, ""), "box:443"),
        ("http://[::1]:8", Endpoint("::1", 8, False, ""), "[::1]:8"),
    ],
)
def test_a_base_url_is_taken_apart(url: str, endpoint: Endpoint, authority: str) -> None:
    """Ports have the defaults of their scheme, and a path is kept as a prefix."""
    assert Endpoint.of(url) == endpoint
    assert endpoint.authority == authority


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "closed the connection inside the reply"),
        (b"SSH-2.0-server\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "closed the connection inside the reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel", "closed the connection inside the reply"),
    ],
)
def test_a_broken_answer_is_a_connection_error(answer: bytes, error: str) -> None:
    """A server that speaks no HTTP, or leaves inside its answer, is told apart and never read as an end."""
    with pytest.raises(ConnectionError, match=error):
        body_of(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_all_framings_of_a_body_are_read(answer: bytes) -> None:
    """Chunks, a length, or the close of the connection end a body; interim answers are skipped."""
    assert body_of(answer) == (200, b"hello")


def body_of(answer: bytes) -> tuple[int | None, bytes]:
    """Send a request to a server that answers with these bytes and closes; return status and body."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_once, args=(listener, answer))
        thread.start()
        try:
            with HttpStream(Endpoint("127.0.0.1", listener.getsockname()[1], False, "")) as stream:
                stream.connect(5)
                stream.post("/", {}, b"{}", 5)
                body = b""
                while not stream.ended:
                    body += stream.read(5)
                return stream.status, body
        finally:
            thread.join()


def _answer_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        request = b""
        while not request.endswith(b"{}"):
            request += connection.recv(4096)
        connection.sendall(answer)
