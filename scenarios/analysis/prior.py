"""What a load is expected to hit at any size of the two tiers: a prior for the search, before any GPU second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.analysis.curve import HitCurve

POINTS = 400
"""Steps that are kept of a curve that may have thousands: two neighbours differ by under 4 % in size."""


@dataclass(frozen=True)
class TierHits:
    """Expected shares of the prompt tokens."""

    device: float
    host: float

    @property
    def total(self) -> float:
        """What is not computed again."""
        return self.device + self.host


@dataclass(frozen=True)
class CachePrior:
    """The expected hit rate by sizes of device and host pool, as plain figures."""

    source: str
    unique_tokens: int
    sizes_tokens: tuple[float, ...]
    """Rising, from 0."""
    hit_rates: tuple[float, ...]
    """Hit rate of one LRU cache that has at least the size at the same place."""

    @classmethod
    def of(cls, source: str, curve: HitCurve) -> CachePrior:
        """Keep the steps of `curve` that matter."""
        steps = len(curve.sizes_tokens)
        kept = np.arange(steps)
        if steps > POINTS:
            grid = np.geomspace(curve.sizes_tokens[1], curve.sizes_tokens[-1], POINTS)
            kept = np.unique([0, *(np.searchsorted(curve.sizes_tokens, grid, side="right") - 1), steps - 1])
        rates = curve.hit_tokens[kept] / curve.prompt_tokens
        return cls(source, curve.unique_tokens, tuple(curve.sizes_tokens[kept].tolist()), tuple(rates.tolist()))

    def at(self, size_tokens: float) -> float:
        """Return the hit rate of one LRU cache of `size_tokens`."""
        return self.hit_rates[max(0, int(np.searchsorted(self.sizes_tokens, size_tokens, side="right")) - 1)]

    def expected(self, device_tokens: float, host_tokens: float = 0.0, *, inclusive: bool = True) -> TierHits:
        """Return what device and host pool of these sizes would serve.

        `inclusive` is for write-through policies, where the host keeps a copy of whatever is on the device: the two
        together hold no more than the larger one. Otherwise (write_back) they hold the sum of both, at best. 0 host
        tokens are a server without HiCache.
        """
        device = self.at(device_tokens)
        together = max(device_tokens, host_tokens) if inclusive else device_tokens + host_tokens
        return TierHits(device, max(0.0, self.at(together) - device))
