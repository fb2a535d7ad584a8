"""Where the tokens of prompts were seen before, how much KV is alive, and after what time it is used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.analysis.distances import NEVER, Reuse, last_touches
from scenarios.analysis.keys import mixed
from scenarios.analysis.stream import AccessStream
from scenarios.analysis.weights import Weights

WINDOWS = 60
"""Points of every course over time."""
QUANTILES = (0.01, *(round(0.05 * step, 2) for step in range(1, 20)), 0.99)


@dataclass(frozen=True)
class Sharing:
    """Shares of all prompt tokens; with `new` they add up to 1."""

    own_session: float | None
    """Seen before in the same session: its history. None when the source does not tell sessions apart."""
    other_sessions: float | None
    """Seen before in other sessions alone: common system prompts, documents, examples."""
    new: float
    """Never seen before: computed whatever the cache."""


@dataclass(frozen=True)
class WorkingSet:
    """KV over time: for each window of `window_s` seconds its end and three figures, in tokens."""

    window_s: float
    until_s: tuple[float, ...]
    unique_tokens: tuple[int, ...]
    """All that was used until then: what an endless cache holds."""
    touched_tokens: tuple[int, ...]
    """Different tokens that were used in the window."""
    kept_tokens: tuple[int, ...]
    """What was used before and will be used again: what a cache that knows the future would hold."""

    @property
    def peak_kept_tokens(self) -> int:
        """The most that is worth holding at a time."""
        return max(self.kept_tokens)


@dataclass(frozen=True)
class ReuseQuantiles:
    """Quantiles over the prompt tokens that were seen before."""

    shares: tuple[float, ...]
    time_s: tuple[float, ...]
    """Since the last use."""
    distance_tokens: tuple[float, ...]
    """Other tokens used since: an LRU cache of this size has kept them."""


def sharing(stream: AccessStream, found: Reuse, weights: Weights) -> Sharing:
    """Tell own history from what sessions share, over the counted requests."""
    own = last_touches(mixed(stream.keys) ^ mixed(stream.session.astype(np.uint64))[stream.request]) >= 0
    prompt_tokens = int(stream.prompt_tokens[stream.counted].sum())
    seen_before = float(weights.tokens[found.distance != NEVER].sum()) + weights.missed
    own_tokens = float(weights.tokens[own].sum())
    return Sharing(
        own_session=own_tokens / prompt_tokens,
        other_sessions=(seen_before - own_tokens) / prompt_tokens,
        new=1 - seen_before / prompt_tokens,
    )


def working_set(stream: AccessStream, found: Reuse, windows: int = WINDOWS) -> WorkingSet:
    """Follow the KV in use over the whole stream."""
    window_s = max(float(stream.at_s[-1]), 1e-3) / windows
    window = np.minimum(stream.at_s / window_s, windows - 1).astype(np.int64)
    now = window[stream.request]
    new = found.previous < 0
    before = np.where(new, -1, window[found.previous])
    scale = stream.block_tokens / stream.rate
    fresh = np.bincount(now[new], minlength=windows)
    touched = np.bincount(now[before != now], minlength=windows)
    across = before[~new], now[~new]
    kept = np.cumsum(np.bincount(across[0], minlength=windows) - np.bincount(across[1], minlength=windows))
    return WorkingSet(
        window_s=window_s,
        until_s=tuple(((np.arange(windows) + 1) * window_s).tolist()),
        unique_tokens=_whole(np.cumsum(fresh) * scale),
        touched_tokens=_whole(touched * scale),
        kept_tokens=_whole(kept * scale),
    )


def reuse_quantiles(
    stream: AccessStream, found: Reuse, weights: Weights, shares: Sequence[float] = QUANTILES
) -> ReuseQuantiles | None:
    """Return after what time and distance prompt tokens are used again; None when none is."""
    request = stream.request
    again = np.flatnonzero((found.previous >= 0) & (weights.tokens > 0))
    if not len(again):
        return None
    tokens = weights.tokens[again]
    time_s = stream.at_s[request[again]] - stream.at_s[found.previous[again]]
    distance = found.distance[again] * (stream.block_tokens / stream.rate)
    return ReuseQuantiles(tuple(shares), _quantiles(time_s, tokens, shares), _quantiles(distance, tokens, shares))


def _quantiles(
    values: npt.NDArray[np.floating], weights: npt.NDArray[np.float64], shares: Sequence[float]
) -> tuple[float, ...]:
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    picks = np.searchsorted(sums, np.asarray(shares) * sums[-1])
    return tuple(values[order][np.minimum(picks, len(values) - 1)].tolist())


def _whole(tokens: npt.NDArray[np.floating]) -> tuple[int, ...]:
    return tuple(np.rint(tokens).astype(np.int64).tolist())
