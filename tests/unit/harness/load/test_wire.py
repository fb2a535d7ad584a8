"""Connections: addresses, framings, answers that are no HTTP, times of reads, and when a connection is used again."""

from __future__ import annotations

import select
import ssl
import time
from contextlib import AbstractContextManager, closing
from itertools import pairwise

import gevent
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.load.wire import LEFT, Connection, Endpoint, Wire, _Response
from tests.support.cases import DATA
from tests.support.wire_server import Step, WireServer, chunk, reply

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FIVE_S = 5.0


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


def ask(wire: Wire, connection: Connection) -> bytes:
    """Send a request and return the body of its response."""
    body = []

    def take(data: bytes, _now_ns: int) -> bool:
        body.append(data)
        return False

    connection.post("/", {}, b"{}", FIVE_S)
    connection.receive(take, lambda: FIVE_S)
    wire.give_back(connection)
    return b"".join(body)


def wire_to(server: WireServer, *, keep_alive: bool = True) -> AbstractContextManager[Wire]:
    """Make the connections to a server; idle ones are closed at the end."""
    return closing(Wire(Endpoint.of(server.base_url), keep_alive=keep_alive))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", LEFT),
        (b"SSH-2.0-server\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", LEFT),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel", LEFT),
    ],
)
def test_a_broken_answer_is_a_connection_error(answer: bytes, error: str) -> None:
    """A server that speaks no HTTP, or leaves inside its answer, is told apart and never read as an end."""
    with WireServer([[Step(answer, "close")]]) as server, wire_to(server) as wire:
        connection = wire.open(FIVE_S)
        with pytest.raises(ConnectionError, match=error):
            ask(wire, connection)
        assert not connection.reusable
        connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        HELLO,
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 102 Processing\r\n\r\n" + HELLO,
    ],
)
def test_all_framings_of_a_body_are_read(answer: bytes) -> None:
    """Chunks, a length, or the close of the connection end a body; interim answers are skipped."""
    with WireServer([[Step(answer, "close")]]) as server, wire_to(server) as wire:
        connection = wire.open(FIVE_S)
        assert ask(wire, connection) == b"hello"
        assert (connection.status, connection.ended) == (200, True)


def test_a_connection_is_used_again_after_a_whole_response() -> None:
    """Two requests, one connection; the second one knows that it is not the first."""
    with WireServer([[Step(HELLO), Step(HELLO)]]) as server, wire_to(server) as wire:
        first = wire.open(FIVE_S)
        assert not first.reused
        ask(wire, first)
        second = wire.idle()
        assert second is first
        assert second.reused
        assert ask(wire, second) == b"hello"
    assert server.asked == [2]


def test_as_many_connections_as_requests_at_once() -> None:
    """Nothing limits the connections, and all of them are kept."""
    with WireServer([[Step(HELLO)]] * 120) as server, wire_to(server) as wire:
        opened = [wire.open(FIVE_S) for _ in range(120)]
        gevent.joinall([gevent.spawn(ask, wire, connection) for connection in opened], raise_error=True)
        idle = [wire.idle() for _ in opened]
        assert set(idle) == set(opened)
        assert wire.idle() is None
        for connection in opened:
            connection.close()


@pytest.mark.parametrize(
    "step",
    [
        Step(HELLO, "close"),
        Step(HELLO, "reset"),
        Step(HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")),
        Step(HELLO.replace(b"HTTP/1.1", b"HTTP/1.0")),
        Step(HELLO + b"surplus"),
        Step(HELLO + HELLO),
    ],
    ids=["closed", "reset", "said it closes", "HTTP 1.0", "surplus bytes", "a second response"],
)
def test_a_connection_that_cannot_serve_again_is_not_offered(step: Step) -> None:
    """Closed meanwhile, about to close, or with bytes that belong to no request: the next request needs a new one."""
    with WireServer([[step]]) as server, wire_to(server) as wire:
        connection = wire.open(FIVE_S)
        assert ask(wire, connection).startswith(b"hello")
        if step.then != "stay":
            server.wait_until_left(0)
        assert wire.idle() is None


def test_without_keep_alive_every_request_says_that_it_is_the_last() -> None:
    """The engine is told to close, and the connection is not kept."""
    with WireServer([[Step(HELLO)]]) as server, wire_to(server, keep_alive=False) as wire:
        ask(wire, wire.open(FIVE_S))
        assert wire.idle() is None
    assert b"\r\nConnection: close\r\n" in server.requests[0][0]


def test_reads_are_timed_before_any_is_understood() -> None:
    """What has come on two connections is read from both before either is parsed: no read waits for another's work."""
    with WireServer([[Step(HELLO)], [Step(HELLO)]]) as server, wire_to(server) as wire:
        connections = [wire.open(FIVE_S) for _ in range(2)]
        read_ns, understood_ns = [], []

        def take(_data: bytes, now_ns: int) -> bool:
            read_ns.append(now_ns)
            understood_ns.append(time.monotonic_ns())
            return True

        for connection in connections:
            connection.post("/", {}, b"{}", FIVE_S)
        while not all(_has_come(connection) for connection in connections):
            time.sleep(0.001)
        waits = [gevent.spawn(connection.receive, take, lambda: FIVE_S) for connection in connections]
        gevent.joinall(waits, raise_error=True)
        assert max(read_ns) < min(understood_ns)
        for connection in connections:
            connection.close()


def _has_come(connection: Connection) -> bool:
    return bool(select.select([connection._socket], [], [], 0)[0])


def test_https(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encrypted connections are read to the last byte, however many records came at once, and used again."""
    pem = DATA / "tls" / "localhost.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    large = b"x" * 300_000
    answers = [Step(HELLO), Step(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + large), Step(HELLO, "close")]
    with WireServer([answers], tls=context) as server, wire_to(server) as wire:
        assert ask(wire, wire.open(FIVE_S)) == b"hello"
        for body in (large, b"hello"):
            connection = wire.idle()
            assert connection is not None
            assert ask(wire, connection) == body
        server.wait_until_left(0)
        assert wire.idle() is None
    assert server.asked == [3]


def test_waiting_ends_when_patience_does_and_is_asked_again_before() -> None:
    """Patience is asked when the time it gave is over; once it raises, so does the wait."""
    given = iter([0.01, 0.01])

    def patience() -> float:
        try:
            return next(given)
        except StopIteration:
            raise TimeoutError("enough") from None

    with WireServer([[Step(reply("a", whole=False))]]) as server, wire_to(server) as wire:
        connection = wire.open(FIVE_S)
        connection.post("/", {}, b"{}", FIVE_S)
        with pytest.raises(TimeoutError, match="enough"):
            connection.receive(lambda _data, _now_ns: False, patience)
        assert not connection.reusable
        connection.close()


def test_what_goes_wrong_in_the_taker_reaches_who_waits() -> None:
    """An error of our own in the event loop isn't lost there: the request ends with it."""

    def take(_data: bytes, _now_ns: int) -> bool:
        raise ZeroDivisionError

    with WireServer([[Step(HELLO)]]) as server, wire_to(server) as wire:
        connection = wire.open(FIVE_S)
        connection.post("/", {}, b"{}", FIVE_S)
        with pytest.raises(ZeroDivisionError):
            connection.receive(take, lambda: FIVE_S)
        assert not connection.reusable
        connection.close()


@settings(max_examples=300)
@given(
    st.binary()
    | st.builds(lambda body: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body, st.binary())
    | st.builds(lambda body: HELLO + body, st.binary()),
    st.integers(min_value=1, max_value=7),
)
def test_any_bytes_are_a_response_or_a_connection_error(answer: bytes, size: int) -> None:
    """Whatever an engine writes, however it is cut, nothing but a ConnectionError comes out."""
    response = _Response()
    try:
        for start in range(0, len(answer), size):
            response.feed_and_take(answer[start : start + size])
        response.feed_and_take(b"")
    except ConnectionError as problem:
        assert str(problem)  # noqa: PT017  # which of the two happens is not the point
    assert not (response.leaves_open and not response.ended)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=8), st.lists(st.integers(min_value=0, max_value=250)))
def test_any_split_of_a_response_gives_the_same_body(parts: list[bytes], cuts: list[int]) -> None:
    """However a chunked response is cut into reads, its body is the same and it ends."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk, [*parts, b""]))
    edges = [0, *sorted({min(cut, len(answer)) for cut in cuts} - {0, len(answer)}), len(answer)]
    response, body = _Response(), b""
    for start, end in pairwise(edges):
        body += response.feed_and_take(answer[start:end])
    assert body == b"".join(parts)
    assert (response.status, response.ended, response.leaves_open) == (200, True, True)
