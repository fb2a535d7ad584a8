"""Hit rate against cache size: what an LRU cache of any size would have saved, and where more of it stops to pay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.analysis.distances import NEVER, Reuse
from scenarios.analysis.stream import AccessStream
from scenarios.analysis.weights import Weights

Floats = npt.NDArray[np.float64]

ENOUGH = 0.99
"""The curve is looked at up to the size that gives this share of the hits of an endless cache: the rest is a tail."""
ABOVE_CHORD = 0.02
"""A bend that rises less than this above the straight line is none."""


@dataclass(frozen=True)
class HitCurve:
    """The exact step function: with at least `sizes_tokens[i]` of cache, `hit_tokens[i]` of `prompt_tokens` hit."""

    prompt_tokens: int
    sizes_tokens: Floats
    """Rising, from 0."""
    hit_tokens: Floats
    unique_tokens: int
    """What an endless cache would hold in the end."""

    def at(self, size_tokens: float) -> float:
        """Return the share of the prompt tokens that hit in an LRU cache of this size."""
        step = max(0, int(np.searchsorted(self.sizes_tokens, size_tokens, side="right")) - 1)
        return float(self.hit_tokens[step]) / self.prompt_tokens

    @property
    def endless(self) -> float:
        """The hit rate of a cache that never evicts."""
        return float(self.hit_tokens[-1]) / self.prompt_tokens

    def size_for(self, hit_rate: float) -> int:
        """Return the smallest size in tokens with this hit rate, or the largest that still gains when none has it."""
        step = int(np.searchsorted(self.hit_tokens, hit_rate * self.prompt_tokens * (1 - 1e-12)))
        return int(self.sizes_tokens[min(step, len(self.sizes_tokens) - 1)])

    def knee(self, from_tokens: float = 0.0) -> int:
        """Return the size beyond `from_tokens` where more cache stops to pay, in tokens.

        The rule is that of Kneedle: of the curve between `from_tokens` and the size that gives 99 % of the endless
        cache's hits, the point that rises most above the straight line between the two ends. A curve that nowhere
        rises 2 % above that line is a ramp or a cliff: sizes short of its end pay in proportion, or not at all, and
        its end is the knee.
        """
        end = self.size_for(ENOUGH * self.endless)
        inside = (self.sizes_tokens > from_tokens) & (self.sizes_tokens <= end)
        sizes, hits = self.sizes_tokens[inside], self.hit_tokens[inside]
        gained = hits - self.at(from_tokens) * self.prompt_tokens
        if len(sizes) == 0 or gained[-1] <= 0:
            return int(max(from_tokens, end))
        rise = gained / gained[-1] - (sizes - from_tokens) / (sizes[-1] - from_tokens)
        best = int(np.argmax(rise))
        return int(sizes[best] if rise[best] > ABOVE_CHORD else sizes[-1])


def hit_curve(stream: AccessStream, found: Reuse, weights: Weights) -> HitCurve:
    """Add the tokens of all counted prompts up by stack distance; a stream without reuse gives a flat curve.

    What a sample has missed is taken for blocks that all prompts share, which are never far down.
    """
    again = found.distance != NEVER
    by_distance = np.bincount(found.distance[again], weights=weights.tokens[again], minlength=1)
    by_distance[0] += weights.missed
    distances = np.flatnonzero(by_distance)
    return HitCurve(
        prompt_tokens=int(stream.prompt_tokens[stream.counted].sum()),
        sizes_tokens=np.concatenate([[0.0], (distances + 1) * (stream.block_tokens / stream.rate)]),
        hit_tokens=np.concatenate([[0.0], np.cumsum(by_distance[distances])]),
        unique_tokens=round(int((~again).sum()) * stream.block_tokens / stream.rate),
    )
