"""Plays one session at a time: turns in order, never overlapping."""

from __future__ import annotations

import time
from dataclasses import dataclass

from harness.load.api import Api
from harness.load.exchange import Exchange, Talker
from harness.load.ledger import Ledger
from harness.load.record import Status
from scenarios.plan import Session


@dataclass(frozen=True, slots=True)
class Player:
    """Plays sessions against one engine. In the load process its sleeps are those of gevent."""

    api: Api
    talker: Talker
    ledger: Ledger

    def play(self, session: Session, free_ns: int) -> int:
        """Play `session` in a slot that is free since `free_ns`; return when the slot is free again."""
        history = self.api.history(session)
        free_ns = max(free_ns, self.ledger.started_ns + _nanoseconds(session.start_s))
        for index, turn in enumerate(session.turns):
            scheduled_ns = free_ns + _nanoseconds(turn.think_s)
            _sleep_until(scheduled_ns)
            body = history.ask(turn)
            exchange = Exchange(session, index, scheduled_ns, time.monotonic_ns(), self.api.reply())
            record = self.talker.converse(exchange, body)
            free_ns = record.end_ns
            if record.status is not Status.OK:
                break  # what the user would say next depends on a reply that never came
            history.join(turn, exchange.reply)
        self.ledger.end_session(session)
        return free_ns


def _sleep_until(due_ns: int) -> None:
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
