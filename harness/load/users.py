"""The Locust user: one slot, which plays the next session of the plan whenever it is free.

Imports Locust, and so belongs to the load process alone.
"""

from __future__ import annotations

from typing import Any

from locust import User, constant
from locust.exception import StopUser

from harness.load.ledger import Ledger
from harness.load.player import Player


class SessionUser(User):  # type: ignore[misc]  # mypy is told to skip locust
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
        self._free_ns = self.player.play(session, self._free_ns)

    tasks = [play_next]  # noqa: RUF012  # how Locust declares tasks
