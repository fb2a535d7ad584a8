"""Plays one session at a time: turns in order, never overlapping."""

from __future__ import annotations

import time
from dataclasses import dataclass

from harness.load.api import Api
from harness.load.exchange import Exchange, Talker
from harness.load.health import HealthMonitor
from harness.load.ledger import Ledger
from harness.load.record import Status
from scenarios.plan import Session, Turn


@dataclass(frozen=True, slots=True)
class Player:
    """Plays sessions against one engine. In the load process its sleeps are those of gevent."""

    api: Api
    talker: Talker
    ledger: Ledger
    health: HealthMonitor

    def arrival_ns(self, session: Session) -> int:
        """Return when `session` is due by the plan."""
        return self.ledger.started_ns + _nanoseconds(session.start_s)

    def play(self, session: Session, *, free_ns: int, idle_ns: int) -> int:
        """Play `session` for a user who is free since `free_ns`; return when the user is free again.

        `idle_ns` is since when this process could have sent the first request, had it been due: a request that was
        due later and is sent late was delayed by the client alone.
        """
        history = self.api.history(session)
        began_ns = free_ns = max(free_ns, self.arrival_ns(session))
        for index, turn in enumerate(session.turns):
            scheduled_ns = _due_ns(turn, began_ns=began_ns, free_ns=free_ns)
            sleep_until(scheduled_ns)
            body = history.ask(turn)
            sent_ns = time.monotonic_ns()
            if idle_ns <= scheduled_ns:
                self.health.sent(sent_ns - scheduled_ns)
            exchange = Exchange(session, index, scheduled_ns, sent_ns, self.api.reply())
            self.ledger.begin(exchange)
            record = self.talker.converse(exchange, body)
            self.ledger.end(exchange)
            free_ns, idle_ns = record.end_ns, time.monotonic_ns()
            if record.status not in (Status.OK, Status.CANCELLED):
                break  # what the user would say next depends on a reply that never came
            history.join(turn, exchange.reply, whole=record.status is Status.OK)
        self.ledger.end_session(session)
        return free_ns


def sleep_until(due_ns: int) -> None:
    """Sleep until a monotonic time; one that has passed takes no time."""
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def _due_ns(turn: Turn, *, began_ns: int, free_ns: int) -> int:
    """A recorded turn is due at its time, whatever the reply before it does; any other after its think time."""
    if turn.at_s is not None:
        return began_ns + _nanoseconds(turn.at_s)
    return free_ns + _nanoseconds(turn.think_s)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
