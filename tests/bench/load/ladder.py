"""The highest rate at which a client still tells the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.load.rung import Rung

ERROR_LIMIT_MS = 5.0
LEAST_FRACTION = 0.95
"""A client that takes less of what is offered slows the load down."""
STEP = 1.5
TRIES = 5


def sustains(rung: Rung) -> bool:
    """Whether every stream was whole, the load was kept up, and the P99 of the TTFT error is below the limit."""
    return rung.broken == 0 and rung.fraction >= LEAST_FRACTION and rung.error_p99_ms < ERROR_LIMIT_MS


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a client gets."""

    client: str
    rungs: tuple[Rung, ...]
    """All that were tried, in order."""
    failure: str | None = None
    """Why the client could not be measured."""

    @property
    def best(self) -> Rung | None:
        """The fastest rung that was sustained."""
        good = [rung for rung in self.rungs if sustains(rung)]
        return max(good, key=lambda rung: rung.load.tokens_per_s, default=None)


def reach(name: str, attempt: Callable[[float], Rung], start: float) -> Reach:
    """Climb from `start` tokens a second, or go down to what is sustained; then try once between the two.

    A client that cannot be run at all is a Reach with its failure: the others are still measured.
    """
    rungs: list[Rung] = []
    good, bad = 0.0, float("inf")
    rate = start
    for _ in range(TRIES):
        try:
            rungs.append(attempt(rate))
        except (OSError, RuntimeError, ValueError) as problem:
            return Reach(name, tuple(rungs), str(problem))
        if sustains(rungs[-1]):
            good = max(good, rate)
        else:
            bad = min(bad, rate)
        if good and bad < float("inf"):
            if bad / good < STEP * 0.99:
                break
            rate = (good * bad) ** 0.5
        else:
            rate = rate * STEP if good else rate / STEP
    return Reach(name, tuple(rungs))
