"""How many prompt tokens each block of a stream stands for, sampled or not.

In a sample a block stands for 1 / rate blocks. But the blocks that very many prompts share, such as those of a system
prompt, are few: they are in the sample, and count too much, or they are not. As such blocks stand at the heads of
prompts, and it is known exactly how many tokens all prompts have at each depth, the blocks of each range of depths are
weighted so that they add up to what is known (post-stratification).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.analysis.stream import AccessStream

RANGES = 40
"""Depths 0, 1, 2-3, 4-7, 8-15 and so on; no prompt has 2^40 blocks."""


@dataclass(frozen=True)
class Weights:
    """Tokens of the requests that were asked for; all of them add up to what stands in blocks."""

    tokens: npt.NDArray[np.float64]
    """For each block of the stream; 0 for the blocks of other requests and of replies."""
    missed: float
    """Tokens at depths of which the sample has no block: few blocks that all prompts share, or next to nothing."""


def token_weights(stream: AccessStream, requests: npt.NDArray[np.bool_] | None = None) -> Weights:
    """Weight the blocks of `requests`, by default of all."""
    tokens = stream.lookup_tokens().astype(np.float64)
    covered = stream.covered_tokens
    if requests is not None:
        tokens[~requests[stream.request]] = 0
        covered = covered[requests]
    if stream.rate == 1:
        return Weights(tokens, 0.0)
    ends = np.concatenate([[0], 2 ** np.arange(RANGES)]) * stream.block_tokens
    known = np.diff([float(np.minimum(covered, end).sum()) for end in ends])
    depth = np.ceil(np.log2(stream.positions + 1)).astype(np.int64)
    sampled = np.bincount(depth, weights=tokens, minlength=RANGES)
    factors = np.divide(known, sampled, out=np.zeros(RANGES), where=sampled > 0)
    return Weights(tokens * factors[depth], float(known[sampled == 0].sum()))
