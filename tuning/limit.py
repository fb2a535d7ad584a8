"""The highest rate of new sessions that an engine sustains within a service level.

Rates are doubled until one misses the level, then the gap is halved (on a logarithmic scale) until it is narrow. The
rate that is left is probed once more with other sessions: luck with one seed is no capacity. All of it follows from
the probes made so far, so that a search that was stopped goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIRM_SEED_OFFSET = 1000
DIGITS = 3
"""Significant digits of a rate: it is written into files and compared there."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One load at one rate, and whether it kept the service level."""

    rate_per_s: float
    seed: int
    meets: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Bracket:
    """What the probes say: every rate up to `meets_per_s` is kept, `misses_per_s` is not; None when not known."""

    meets_per_s: float | None
    misses_per_s: float | None

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> Bracket:
        """Take the lowest rate that was ever missed at its word: a rate kept above it was luck."""
        misses = min((probe.rate_per_s for probe in probes if not probe.meets), default=None)
        below = [p.rate_per_s for p in probes if p.meets and (misses is None or p.rate_per_s < misses)]
        return cls(max(below, default=None), misses)


@dataclass(frozen=True, slots=True)
class Bisection:
    """How rates are chosen. `precision` is the relative width of the gap that is narrow enough, such as 0.1."""

    start_per_s: float
    least_per_s: float
    most_per_s: float
    precision: float
    seed: int

    def next_probe(self, probes: Sequence[Probe]) -> tuple[float, int] | None:
        """Return the rate and the seed to probe next; None when the answer is known."""
        known = Bracket.of(probes)
        meets, misses = known.meets_per_s, known.misses_per_s
        if meets is None:
            rate = self.start_per_s if misses is None else misses / 2
            return (rounded(rate), self.seed) if rate >= self.least_per_s else None
        if misses is None and meets < self.most_per_s:
            return rounded(min(2 * meets, self.most_per_s)), self.seed
        if misses is not None and misses > meets * (1 + self.precision):
            middle = rounded(math.sqrt(meets * misses))
            if meets < middle < misses:
                return middle, self.seed
        return None if self.confirmed(probes) else (meets, self.seed + CONFIRM_SEED_OFFSET)

    def confirmed(self, probes: Sequence[Probe]) -> bool:
        """Whether the highest rate that is kept was kept with other sessions too."""
        rate = Bracket.of(probes).meets_per_s
        return any(p.rate_per_s == rate and p.seed == self.seed + CONFIRM_SEED_OFFSET for p in probes)


def rounded(rate_per_s: float) -> float:
    """Round a rate to the digits that it is written with."""
    return float(f"{rate_per_s:.{DIGITS}g}")
