"""From which length on bringing KV back from the host beats computing it, on an engine that does little else.

Each prompt was timed cold and as a host hit, so their difference is what the reload saved. A robust line through the
differences by length (Theil-Sen) is what each token saves and what each reload costs whatever its length; where it
crosses zero, both take as long. Its interval resamples prompts. Nothing is said of lengths far from those that were
timed. Under load the figures are others: there, requests also wait for those who compute or reload
(`harness.reload_cost`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from harness.statistics import CONFIDENCE, Floats
from harness.verify.timing import Timing
from scenarios.strict import StrictModel

LEAST_LENGTHS = 3
RESAMPLES = 200


class BreakEven(StrictModel):
    """What was found, in tokens and in seconds."""

    shortest_tokens: int
    longest_tokens: int
    """The lengths that came back from the host."""
    tokens: float | None
    """Reloading more than this is faster than computing it; None where no such length is sure."""
    low_tokens: float | None
    high_tokens: float | None
    """The ends of its 95 % interval; None: that end is no length."""
    saved_s_per_token: float

    @property
    def sentence(self) -> str:
        """Say it in one sentence."""
        if self.tokens is None:
            return f"No length from which reloading is faster shows in prompts of up to {self.longest_tokens:,} tokens."
        if self.tokens <= self.shortest_tokens:
            return f"It holds for every length that was tried, from {self.shortest_tokens:,} tokens on."
        if self.tokens > self.longest_tokens:
            return f"No length up to {self.longest_tokens:,} tokens is reloaded faster than it is computed."
        most = "more" if self.high_tokens is None else f"{self.high_tokens:,.0f}"
        span = f"95 %: {self.low_tokens or 0:,.0f} to {most}"
        return f"Reloading is faster from about {self.tokens:,.0f} tokens on ({span})."


def break_even(cold: Sequence[Timing], host: Sequence[Timing]) -> BreakEven | None:
    """Compare the same prompts, timed cold and from the host; None for fewer than three lengths."""
    tokens: Floats = np.array([timing.prompt_tokens for timing in cold], dtype=np.float64)
    saved_s: Floats = np.array([c.ttft_s - h.ttft_s for c, h in zip(cold, host, strict=True)], dtype=np.float64)
    if len(np.unique(tokens)) < LEAST_LENGTHS:
        return None
    slope, intercept = _line(tokens, saved_s)
    rng = np.random.default_rng(0)
    lines = [_line(tokens[drawn], saved_s[drawn]) for drawn in _draws(rng, tokens)]
    slopes, intercepts = np.array(lines).T
    tail = (1 - CONFIDENCE) / 2
    is_sure = float(np.quantile(slopes, tail)) > 0
    lengths = np.full(len(slopes), np.inf)
    np.divide(-intercepts, slopes, out=lengths, where=slopes > 0)
    low, high = np.quantile(np.maximum(lengths, 0.0), [tail, 1 - tail], method="nearest")
    return BreakEven(
        shortest_tokens=int(tokens.min()),
        longest_tokens=int(tokens.max()),
        tokens=max(0.0, -intercept / slope) if is_sure else None,
        low_tokens=float(low) if is_sure else None,
        high_tokens=float(high) if is_sure and np.isfinite(high) else None,
        saved_s_per_token=slope,
    )


def _line(tokens: Floats, saved_s: Floats) -> tuple[float, float]:
    found = stats.theilslopes(saved_s, tokens)
    return float(found.slope), float(found.intercept)


def _draws(rng: np.random.Generator, tokens: Floats) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Draw prompts of each length anew, so that every draw has all lengths."""
    groups = [np.flatnonzero(tokens == length) for length in np.unique(tokens)]
    return [np.concatenate([rng.choice(group, len(group)) for group in groups]) for _ in range(RESAMPLES)]
