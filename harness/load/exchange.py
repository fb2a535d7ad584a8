"""One request on the wire: asked once, listened to until it ends in any way, recorded once."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from gevent import GreenletExit

from harness.load.job import Timeouts
from harness.load.ledger import Ledger
from harness.load.record import RequestRecord, Status
from harness.load.reply import MAX_ERROR_CHARS, Reply, error_in
from harness.load.sse import SseReader
from harness.load.wire import Connection, Wire
from scenarios.plan import Session

DRAIN_S = 1.0
CROSSING_S = 1.0
"""A used connection that breaks within this time of the request, with no byte of an answer, is one that the engine
closed while the request was under way (uvicorn does so after 5 idle seconds); later, it is an engine that failed."""


@dataclass(slots=True)
class Exchange:
    """One request in flight: what is known of it, and the record it becomes."""

    session: Session
    turn: int
    scheduled_ns: int
    sent_ns: int
    """When it was sent first, should it be sent again on a new connection."""
    reply: Reply
    heard_ns: int = 0
    """The time of the last read."""
    http_status: int | None = None
    reconnected: bool = False

    @property
    def left(self) -> bool:
        """Whether the user has read as much as the plan says before leaving, and there is more to come."""
        limit = self.session.turns[self.turn].cancel_after_tokens
        reply = self.reply
        return limit is not None and len(reply.delta_times_ns) >= limit and not (reply.done or reply.finished)

    def record(self, status: Status, end_ns: int, error: str | None = None) -> RequestRecord:
        """Make the record. A failed request has no TTFT, whatever came before the failure."""
        reply = self.reply
        times_ns = [] if status is Status.FAILED else reply.delta_times_ns
        return RequestRecord(
            session_id=self.session.session_id,
            turn=self.turn,
            phase=self.session.phase,
            status=status,
            scheduled_ns=self.scheduled_ns,
            sent_ns=self.sent_ns,
            end_ns=end_ns,
            first_token_ns=times_ns[0] if times_ns else None,
            last_token_ns=times_ns[-1] if times_ns else None,
            chunks=len(reply.delta_times_ns),
            prompt_tokens=reply.prompt_tokens,
            output_tokens=reply.output_tokens,
            cached_tokens=reply.cached_tokens,
            device_cached_tokens=reply.device_cached_tokens,
            host_cached_tokens=reply.host_cached_tokens,
            storage_cached_tokens=reply.storage_cached_tokens,
            http_status=self.http_status,
            error=error,
            # Eight bytes a token: a night's load keeps millions of them.
            delta_gaps_ns=array("q", [after - before for before, after in pairwise(times_ns)]),
            reconnected=self.reconnected,
        )


@dataclass(frozen=True, slots=True)
class Talker:
    """Holds exchanges with one engine."""

    path: str
    wire: Wire
    headers: Mapping[str, str]
    timeouts: Timeouts
    ledger: Ledger
    on_record: Callable[[RequestRecord], None]
    session_header: str | None = None
    """The header that carries the session's id."""

    def converse(self, exchange: Exchange, body: bytes) -> RequestRecord:
        """Send one request and listen until it ends in any way.

        It is sent a second time only when the engine closed a used connection before it can have read it; the record
        says so.
        """
        self.ledger.in_flight += 1
        try:
            connection = self._listen(exchange, body)
            record = _judge(exchange, None)
        except OSError as problem:
            if isinstance(problem, ConnectionRefusedError):
                self.ledger.refused()
            connection, record = None, _judge(exchange, problem)
        except GreenletExit:
            self._keep(exchange.record(Status.CUT, time.monotonic_ns(), "the load ended"))
            raise
        self._keep(record)
        if connection is not None:
            self._part(connection, record)
        return record

    def _listen(self, exchange: Exchange, body: bytes) -> Connection:
        """Return the connection on which the reply came."""
        used = self.wire.idle()
        if used is not None:
            asked_ns = time.monotonic_ns()
            try:
                return self._listen_on(used, exchange, body)
            except ConnectionError:
                if used.answered or time.monotonic_ns() - asked_ns > CROSSING_S * 1e9:
                    raise
                exchange.reconnected = True
        fresh = self.wire.open(self.timeouts.connect_s)
        self.ledger.connected()
        return self._listen_on(fresh, exchange, body)

    def _listen_on(self, connection: Connection, exchange: Exchange, body: bytes) -> Connection:
        limits, reply, reader = self.timeouts, exchange.reply, SseReader()
        refusal = bytearray()

        def take(data: bytes, now_ns: int) -> bool:
            exchange.heard_ns = now_ns
            if connection.status != 200:
                refusal.extend(data)
                return False
            for event in reader.feed(data):
                reply.feed(event, now_ns)
            return reply.done or exchange.left

        try:
            connection.post(self.path, self._headers(exchange), body, limits.first_token_s)
            connection.receive(take, lambda: _left_s(limits, exchange))
        except BaseException:
            connection.close()
            raise
        finally:
            exchange.http_status = connection.status
        if connection.status != 200:
            reply.fail(_refusal_text(connection.status, refusal))
        return connection

    def _headers(self, exchange: Exchange) -> Mapping[str, str]:
        if self.session_header is None:
            return self.headers
        return {**self.headers, self.session_header: exchange.session.session_id}

    def _part(self, connection: Connection, record: RequestRecord) -> None:
        """Let the engine write its last bytes after a whole reply: closing earlier would look like a user who left."""
        if record.status is Status.OK and not connection.ended:
            until = time.monotonic() + DRAIN_S
            try:
                connection.receive(lambda _data, _now_ns: False, lambda: _until(until))
            except OSError:
                pass
            except BaseException:
                connection.close()
                raise
        self.wire.give_back(connection)

    def _keep(self, record: RequestRecord) -> None:
        self.ledger.in_flight -= 1
        self.ledger.add(record)
        self.on_record(record)


def _left_s(limits: Timeouts, exchange: Exchange) -> float:
    """Say how long to wait before the limits are looked at again; raise TimeoutError that says which one passed."""
    now_ns = time.monotonic_ns()
    waited_s = (now_ns - exchange.sent_ns) / 1e9
    if exchange.reply.delta_times_ns:
        left_s = limits.idle_s - (now_ns - exchange.heard_ns) / 1e9
        why = f"nothing came for {limits.idle_s:g} s"
    else:
        left_s, why = limits.first_token_s - waited_s, f"no token within {limits.first_token_s:g} s"
    if limits.total_s - waited_s < left_s:
        left_s, why = limits.total_s - waited_s, f"no end within {limits.total_s:g} s"
    if left_s <= 0:
        raise TimeoutError(why)
    return min(left_s, limits.idle_s)  # a first token may come meanwhile, after which the idle limit counts


def _until(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _judge(exchange: Exchange, broken: OSError | None) -> RequestRecord:
    """Decide how a request ended; a connection that breaks after a whole reply is no failure."""
    problem = exchange.reply.problem()
    if problem is None:
        return exchange.record(Status.OK, exchange.heard_ns)
    if exchange.reply.error is not None:
        return exchange.record(Status.FAILED, time.monotonic_ns(), problem)
    if exchange.left:
        return exchange.record(Status.CANCELLED, exchange.heard_ns)
    if broken is None:
        return exchange.record(Status.FAILED, time.monotonic_ns(), problem)
    status = Status.TIMEOUT if isinstance(broken, TimeoutError) else Status.FAILED
    text = str(broken) or type(broken).__name__
    return exchange.record(status, time.monotonic_ns(), text[:MAX_ERROR_CHARS])


def _refusal_text(status: int | None, body: bytes | bytearray) -> str:
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    message = error_in(answer) if isinstance(answer, dict) else None
    return f"HTTP {status}: {message or text or 'no message'}"
