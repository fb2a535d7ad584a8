"""The Locust users: a slot of a closed plan, and one arrival of an open one.

Imports Locust, and so belongs to the load processes alone.
"""

from __future__ import annotations

import time
from typing import Any

from locust import User, constant
from locust.exception import StopUser

from harness.load.ledger import Ledger
from harness.load.player import Player
from scenarios.plan import Session


class SlotUser(User):  # type: ignore[misc]  # mypy is told to skip locust
    """Plays session after session; `player` and `ledger` are set on the class before the load starts."""

    wait_time = constant(0)
    player: Player
    ledger: Ledger

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self._free_ns = self.ledger.started_ns

    def play_next(self) -> None:
        """Play the next session; stop this user when there is none."""
        session = self.ledger.take()
        if session is None:
            raise StopUser
        self._free_ns = self.player.play(session, free_ns=self._free_ns, idle_ns=time.monotonic_ns())

    tasks = [play_next]  # noqa: RUF012  # how Locust declares tasks


class ArrivalUser(User):  # type: ignore[misc]  # mypy is told to skip locust
    """Plays one session, which begins when the plan says, and leaves; `player` is set on the class."""

    player: Player

    def __init__(self, environment: Any, session: Session) -> None:
        super().__init__(environment)
        self._session = session

    def play_it(self) -> None:
        """Play the session."""
        arrival_ns = self.player.arrival_ns(self._session)
        self.player.play(self._session, free_ns=arrival_ns, idle_ns=arrival_ns)
        raise StopUser

    tasks = [play_it]  # noqa: RUF012  # how Locust declares tasks
