"""What has been said in a session, encoded once: a turn adds its own words instead of encoding all of them again.

Branches share what came before them, so a history is a chain of words from the latest back to the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.errors import ScenarioError
from scenarios.plan import Plan, Session, Turn

SEPARATOR = b", "
"""Between two elements of a list, as `json.dumps` writes it."""


@dataclass(frozen=True, slots=True)
class _Words:
    encoded: bytes
    before: _Words | None


class Branches:
    """The words of a session: elements of one JSON list, encoded, and where each turn has ended."""

    def __init__(self, opening: bytes) -> None:
        self._latest: _Words | None = None
        self.add(opening)
        self._ends: list[_Words | None] = [self._latest]

    def turn_to(self, turn: Turn) -> None:
        """Go on where `turn` continues: after the turn before it, an earlier one, or the beginning."""
        if turn.after is not None:
            self._latest = self._ends[turn.after + 1]

    def add(self, elements: bytes) -> None:
        """Say some more; nothing adds nothing."""
        if elements:
            self._latest = _Words(elements, self._latest)

    def end_turn(self) -> None:
        """Keep where the turn ends: a later one may continue here."""
        self._ends.append(self._latest)

    def elements(self) -> bytes:
        """Return all words of this branch, as they stand between the brackets of the list."""
        words, found = self._latest, []
        while words is not None:
            found.append(words.encoded)
            words = words.before
        return SEPARATOR.join(reversed(found))


def check_turns(plan: Plan) -> None:
    """Raise ScenarioError at the first turn that continues no earlier one, or is left before it says anything."""
    for session in plan.sessions:
        for number, turn in enumerate(session.turns):
            if turn.after is not None and not -1 <= turn.after < number:
                raise ScenarioError(
                    f"{_place(session, number)}: `after` is {turn.after}, which is no earlier turn; "
                    "name one of those, or -1 for the session's beginning"
                )
            if turn.cancel_after_tokens is not None and turn.cancel_after_tokens < 1:
                raise ScenarioError(
                    f"{_place(session, number)}: `cancel_after_tokens` is {turn.cancel_after_tokens}; "
                    "it must be 1 or more, as a user leaves in the middle of a reply"
                )


def _place(session: Session, number: int) -> str:
    return f"session {session.session_id}, turn {number}"
