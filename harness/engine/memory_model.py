"""How far predictions of memory are off, learned from the trials of a study."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

PRIOR_SHARE = 0.10
"""How far off a prediction may be before anything was seen."""
LEAST_SHARE = 0.01
"""However well it fits, a prediction is not trusted closer than this: allocators round, and other programs breathe."""
WIDEN = 2.0
"""The largest miss of a few trials is not the largest that comes."""


@dataclass(frozen=True)
class Corrected:
    """A prediction after its correction, in bytes."""

    value_bytes: int
    error_bytes: int
    """Reality is expected within this much of `value_bytes`."""

    @property
    def least_bytes(self) -> int:
        """What it takes at the least: more than this is missing for sure."""
        return max(0, self.value_bytes - self.error_bytes)

    @property
    def most_bytes(self) -> int:
        """What it may take at the most."""
        return self.value_bytes + self.error_bytes


Pairs = Sequence[tuple[int, int]]
"""Of each trial what was predicted and what was seen, in bytes."""
Rule = Callable[[Pairs, int], float]


class MemoryModel:
    """Corrects predictions by what earlier trials of the study showed: by a constant, or by a factor.

    A constant fits what the formulas leave out, as a context of the GPU; a factor fits what they get wrong for every
    token. Of the two, the one counts that would have foretold each trial best from the others. Each takes a
    median, so that one odd trial does not move it.
    """

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._pairs = [(predicted, seen) for predicted, seen in pairs if predicted > 0 and seen > 0]

    def learn(self, predicted_bytes: int, seen_bytes: int) -> None:
        """Take in one trial; what is not positive says nothing."""
        if predicted_bytes > 0 and seen_bytes > 0:
            self._pairs.append((predicted_bytes, seen_bytes))

    @property
    def trials(self) -> int:
        """How many trials it has learned from."""
        return len(self._pairs)

    def correct(self, predicted_bytes: int) -> Corrected:
        """Correct a prediction and say how far off it may still be."""
        if not self._pairs:
            return Corrected(predicted_bytes, round(PRIOR_SHARE * predicted_bytes))
        misses = {rule: _misses(self._pairs, rule) for rule in (_by_constant, _by_factor)}
        # The sum, not the median: where most trials are of one size both rules foretell them, and the others decide.
        rule = min(misses, key=lambda rule: sum(misses[rule]))
        value = max(0, round(rule(self._pairs, predicted_bytes)))
        least = LEAST_SHARE * value if self.trials > 1 else PRIOR_SHARE / 2 * value
        return Corrected(value, round(max(least, WIDEN * max(misses[rule]))))


def _by_constant(pairs: Pairs, predicted: int) -> float:
    return predicted + statistics.median(seen - said for said, seen in pairs)


def _by_factor(pairs: Pairs, predicted: int) -> float:
    return predicted * statistics.median(seen / said for said, seen in pairs)


def _misses(pairs: Pairs, rule: Rule) -> list[float]:
    """Return how far off each trial is when it is foretold from the others; 0 when there is no other."""
    if len(pairs) < 2:
        return [0.0]
    others = ([*pairs[:number], *pairs[number + 1 :]] for number in range(len(pairs)))
    return [abs(rule(rest, predicted) - seen) for rest, (predicted, seen) in zip(others, pairs, strict=True)]
