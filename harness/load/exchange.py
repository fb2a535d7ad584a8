"""One request on the wire: asked once, listened to until it ends in any way, recorded once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gevent import GreenletExit

from harness.load.job import Timeouts
from harness.load.ledger import Ledger
from harness.load.record import RequestRecord, Status
from harness.load.reply import MAX_ERROR_CHARS, Reply, error_in
from harness.load.sse import SseReader
from harness.load.wire import Endpoint, HttpStream
from scenarios.plan import Session


@dataclass(slots=True)
class Exchange:
    """One request in flight: what is known of it, and the record it becomes."""

    session: Session
    turn: int
    scheduled_ns: int
    sent_ns: int
    reply: Reply
    heard_ns: int = 0
    """The time of the last read."""
    http_status: int | None = None

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
        )


@dataclass(frozen=True, slots=True)
class Talker:
    """Holds exchanges with one engine. In the load process its sockets are those of gevent."""

    path: str
    endpoint: Endpoint
    headers: Mapping[str, str]
    timeouts: Timeouts
    ledger: Ledger
    on_record: Callable[[RequestRecord], None]

    def converse(self, exchange: Exchange, body: bytes) -> RequestRecord:
        """Send one request, once, and listen until it ends in any way."""
        self.ledger.in_flight += 1
        with HttpStream(self.endpoint) as stream:
            try:
                self._listen(stream, exchange, body)
                record = _judge(exchange, None)
            except OSError as problem:
                if isinstance(problem, ConnectionRefusedError):
                    self.ledger.refused()
                record = _judge(exchange, problem)
            except GreenletExit:
                self._keep(exchange.record(Status.CUT, time.monotonic_ns(), "the load ended"))
                raise
            self._keep(record)
            if record.status is Status.OK:
                stream.drain()
        return record

    def _listen(self, stream: HttpStream, exchange: Exchange, body: bytes) -> None:
        reply, reader = exchange.reply, SseReader()
        refusal = b""
        stream.connect(self.timeouts.connect_s)
        self.ledger.connected()
        stream.post(self.path, self.headers, body, self.timeouts.first_token_s)
        while not (stream.ended or reply.done):
            data = self._read(stream, exchange)
            exchange.heard_ns = time.monotonic_ns()
            exchange.http_status = stream.status
            if stream.status == 200:
                for event in reader.feed(data):
                    reply.feed(event, exchange.heard_ns)
            else:
                refusal += data
        if exchange.http_status != 200:
            reply.fail(_refusal_text(exchange.http_status, refusal))

    def _read(self, stream: HttpStream, exchange: Exchange) -> bytes:
        """Read with the patience that is left; raise TimeoutError that says which limit passed."""
        limits, now_ns = self.timeouts, time.monotonic_ns()
        waited_s = (now_ns - exchange.sent_ns) / 1e9
        if exchange.reply.delta_times_ns:
            left_s, why = limits.idle_s, f"nothing came for {limits.idle_s:g} s"
        else:
            left_s, why = limits.first_token_s - waited_s, f"no token within {limits.first_token_s:g} s"
        if limits.total_s - waited_s < left_s:
            left_s, why = limits.total_s - waited_s, f"no end within {limits.total_s:g} s"
        if left_s <= 0:
            raise TimeoutError(why)
        try:
            return stream.read(left_s)
        except TimeoutError:
            raise TimeoutError(why) from None

    def _keep(self, record: RequestRecord) -> None:
        self.ledger.in_flight -= 1
        self.ledger.add(record)
        self.on_record(record)


def _judge(exchange: Exchange, broken: OSError | None) -> RequestRecord:
    """Decide how a request ended; a connection that breaks after a whole reply is no failure."""
    problem = exchange.reply.problem()
    if problem is None:
        return exchange.record(Status.OK, exchange.heard_ns)
    if broken is None or exchange.reply.error is not None:
        return exchange.record(Status.FAILED, time.monotonic_ns(), problem)
    status = Status.TIMEOUT if isinstance(broken, TimeoutError) else Status.FAILED
    text = str(broken) or type(broken).__name__
    return exchange.record(status, time.monotonic_ns(), text[:MAX_ERROR_CHARS])


def _refusal_text(status: int | None, body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    message = error_in(answer) if isinstance(answer, dict) else None
    return f"HTTP {status}: {message or text or 'no message'}"
