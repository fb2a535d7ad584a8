"""One request: when it is sent again, when never, how it ends, and what its record says."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import gevent
import pytest

from harness.load import exchange as exchange_module
from harness.load.exchange import Exchange, Talker
from harness.load.job import Timeouts
from harness.load.ledger import Ledger
from harness.load.record import RequestRecord, Status
from harness.load.reply import ChatReply
from harness.load.wire import Endpoint, Wire
from scenarios.plan import Phase, Plan, Session, Turn
from tests.support.wire_server import Step, WireServer, reply

BODY = b"{}"
WHOLE = Step(reply("a", "b", "c"))
BROKEN = Step(b"", "close")
"""Reads the request and leaves without a word."""
REFUSAL = Step(b'HTTP/1.1 503 Busy\r\nContent-Length: 38\r\n\r\n{"error": {"message": "queue is full"}')


class Chat:
    """Sends requests to one server through a talker of its own."""

    def __init__(self, server: WireServer, *, keep_alive: bool = True, session_header: str | None = None) -> None:
        self.ledger = Ledger(Plan("test", 1, 1, ()), refusals_before_lost=5)
        self.wire = Wire(Endpoint.of(server.base_url), keep_alive=keep_alive)
        timeouts = Timeouts(connect_s=5, first_token_s=5, idle_s=0.1, total_s=9)
        self.seen: list[RequestRecord] = []
        self.talker = Talker("/chat", self.wire, {}, timeouts, self.ledger, self.seen.append, session_header)

    def ask(self, *, cancel_after: int | None = None) -> RequestRecord:
        """Send one request and return its record, which is also the ledger's and the listener's."""
        turn = Turn(0.0, 3, text="hi", cancel_after_tokens=cancel_after)
        now_ns = time.monotonic_ns()
        record = self.talker.converse(
            Exchange(Session("s-1", Phase.COUNTED, (turn,)), 0, now_ns, now_ns, ChatReply()), BODY
        )
        assert self.seen[-1] is self.ledger.records[-1] is record
        assert self.ledger.in_flight == 0
        return record


@contextmanager
def chat_with(*connections: Sequence[Step], keep_alive: bool = True) -> Iterator[tuple[Chat, WireServer]]:
    """Run a server with these connections, and a chat with it."""
    with WireServer(connections) as server:
        chat = Chat(server, keep_alive=keep_alive)
        try:
            yield chat, server
        finally:
            chat.wire.close()


def test_requests_share_a_connection() -> None:
    """A whole reply leaves the connection to the next request, and nothing is counted."""
    with chat_with([WHOLE, WHOLE]) as (chat, server):
        records = [chat.ask(), chat.ask()]
    assert [(record.status, record.reconnected) for record in records] == [(Status.OK, False)] * 2
    assert server.asked == [2]


def test_without_keep_alive_each_request_has_its_own() -> None:
    """The job's choice holds."""
    with chat_with([WHOLE], [WHOLE], keep_alive=False) as (chat, server):
        assert [chat.ask().status, chat.ask().status] == [Status.OK, Status.OK]
    assert server.asked == [1, 1]


def test_an_idle_connection_that_was_closed_is_noticed_before_sending() -> None:
    """An engine that closes after a while (uvicorn after 5 s) costs no failure, and there is nothing to count."""
    with chat_with([Step(WHOLE.answer, "close")], [WHOLE]) as (chat, server):
        chat.ask()
        server.wait_until_left(0)
        record = chat.ask()
    assert (record.status, record.reconnected) == (Status.OK, False)
    assert server.asked == [1, 1]


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_close_that_crosses_the_request_is_opened_again_once_and_told(way: str) -> None:
    """A used connection that breaks at once and without an answer is reopened; the record shows it."""
    with chat_with([WHOLE, Step(b"", way)], [WHOLE]) as (chat, server):
        chat.ask()
        sent_ns = time.monotonic_ns()
        record = chat.ask()
    assert (record.status, record.reconnected, record.chunks) == (Status.OK, True, 3)
    assert record.sent_ns - sent_ns < 1_000_000_000
    assert server.asked == [2, 1]


def test_it_is_opened_again_only_once() -> None:
    """When the new connection breaks as well, that is a failure."""
    with chat_with([WHOLE, BROKEN], [BROKEN], [WHOLE]) as (chat, server):
        chat.ask()
        record = chat.ask()
    assert (record.status, record.reconnected) == (Status.FAILED, True)
    assert "closed the connection" in str(record.error)
    assert server.asked == [2, 1]


def test_a_break_of_a_new_connection_is_a_failure() -> None:
    """A server that reads the request and leaves has failed; nothing is sent a second time."""
    with chat_with([BROKEN], [WHOLE]) as (chat, server):
        record = chat.ask()
    assert (record.status, record.reconnected, record.first_token_ns) == (Status.FAILED, False, None)
    assert server.asked == [1]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200", reply("a", whole=False)])
def test_a_break_after_any_byte_of_an_answer_is_a_failure(answer: bytes) -> None:
    """On a used connection too: the engine had begun to answer."""
    with chat_with([WHOLE, Step(answer, "close")], [WHOLE]) as (chat, server):
        chat.ask()
        record = chat.ask()
    assert (record.status, record.reconnected) == (Status.FAILED, False)
    assert server.asked == [2]


def test_a_late_break_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that breaks a used connection long after the request came had read it: it isn't asked again."""
    monkeypatch.setattr(exchange_module, "CROSSING_S", 0.0)
    with chat_with([WHOLE, BROKEN], [WHOLE]) as (chat, server):
        chat.ask()
        assert chat.ask().status is Status.FAILED
    assert server.asked == [2]


def test_a_refusal_is_never_sent_again() -> None:
    """A 503 is a failure with the engine's words; the connection, whole as it is, serves the next request."""
    with chat_with([WHOLE, REFUSAL, WHOLE]) as (chat, server):
        records = [chat.ask(), chat.ask(), chat.ask()]
    assert [record.status for record in records] == [Status.OK, Status.FAILED, Status.OK]
    assert (records[1].http_status, records[1].reconnected) == (503, False)
    assert str(records[1].error).startswith("HTTP 503: {")
    assert server.asked == [3]


def test_nobody_listens() -> None:
    """A refused connection is a failure that the ledger counts."""
    with WireServer([]) as server:
        pass
    chat = Chat(server)
    assert "refused" in str(chat.ask().error)
    assert chat.ledger.stopped is None
    for _ in range(4):
        chat.ask()
    assert chat.ledger.stopped is not None


def test_a_user_who_leaves() -> None:
    """The reply counts up to where the user left, its first token with it, and the connection is closed."""
    with chat_with([Step(reply("a", "b", whole=False))], [WHOLE]) as (chat, server):
        record = chat.ask(cancel_after=2)
        server.wait_until_left(0)
        again = chat.ask()
    assert (record.status, record.chunks, record.error) == (Status.CANCELLED, 2, None)
    assert record.first_token_ns is not None
    assert record.last_token_ns == record.end_ns
    assert again.status is Status.OK
    assert server.asked == [1, 1]


def test_a_reply_that_ends_where_the_user_would_leave_is_whole() -> None:
    """Who has read everything has not left early."""
    with chat_with([WHOLE]) as (chat, _):
        assert chat.ask(cancel_after=3).status is Status.OK


def test_a_reply_that_stops_is_a_time_out() -> None:
    """After the first token the idle limit counts, however far off that of the first token is."""
    with chat_with([Step(reply("a", whole=False))]) as (chat, _):
        record = chat.ask()
    assert (record.status, record.error) == (Status.TIMEOUT, "nothing came for 0.1 s")
    assert record.end_ns - record.sent_ns < 4_000_000_000


def test_a_request_that_is_cut_is_recorded_and_closed() -> None:
    """When the load ends, the record says so, and the engine sees its user leave."""
    with chat_with([Step(b"HTTP/1.1 200 OK\r\n")]) as (chat, server):
        asking = gevent.spawn(chat.ask)
        while not (server.requests and server.requests[0]):
            gevent.sleep(0.001)
        asking.kill()
        server.wait_until_left(0)
    assert [record.status for record in chat.seen] == [Status.CUT]
    assert chat.ledger.in_flight == 0


def test_gaps_add_up() -> None:
    """The times between deltas sum up to the time from the first to the last token."""
    with chat_with([WHOLE]) as (chat, _):
        record = chat.ask()
    assert record.first_token_ns is not None
    assert record.last_token_ns is not None
    assert len(record.delta_gaps_ns) == record.chunks - 1
    assert sum(record.delta_gaps_ns) == record.last_token_ns - record.first_token_ns


def test_the_session_is_named_in_its_header() -> None:
    """A router finds the session's id where the job says."""
    with WireServer([[WHOLE]]) as server:
        chat = Chat(server, session_header="X-Routing-Key")
        chat.ask()
        chat.wire.close()
    assert b"\r\nX-Routing-Key: s-1\r\n" in server.requests[0][0]
