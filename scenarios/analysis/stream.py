"""The one form in which analysis sees any load: requests in the order of time, each with the keys of its blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scenarios.analysis.keys import Integers, Keys, mixed
from scenarios.errors import ScenarioError

MAX_BLOCKS = 16_000_000
"""Blocks that are kept. Beyond, the stream is sampled: 10 million need about 1 GB and some ten seconds."""
MIN_RATE = 2.0**-20


@dataclass(frozen=True)
class AccessStream:
    """Requests and the blocks that each looks up in the cache and leaves in it.

    A request's blocks stand head to tail in `keys`. Its first `lookups` blocks belong to the prompt; further ones are
    the reply, which is cached and not looked up. With a `rate` below 1 only that share of all blocks is here, chosen by
    their keys, while the figures of the requests still count everything.
    """

    block_tokens: int
    rate: float
    at_s: npt.NDArray[np.float64]
    """When each request begins, seconds after the first."""
    session: Integers
    prompt_tokens: Integers
    lookups: Integers
    """Blocks of each prompt, before sampling."""
    counted: npt.NDArray[np.bool_]
    """False: the request fills the cache and is not judged, as a warm-up is."""
    lengths: Integers
    """Blocks of each request in `keys`."""
    keys: Keys
    positions: npt.NDArray[np.int32]
    """Place of each block in its request, before sampling."""

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def request(self) -> npt.NDArray[np.int32]:
        """The request of each block."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    @property
    def covered_tokens(self) -> Integers:
        """Tokens of each prompt that stand in blocks, and so could be found in a cache."""
        return np.minimum(self.lookups * self.block_tokens, self.prompt_tokens)

    def lookup_tokens(self) -> npt.NDArray[np.int32]:
        """Return the prompt's tokens in each block: 0 for blocks of the reply, fewer than a block in the last one."""
        request = self.request
        rest = self.prompt_tokens[request] - self.positions.astype(np.int64) * self.block_tokens
        tokens: npt.NDArray[np.int32] = np.clip(rest, 0, self.block_tokens).astype(np.int32)
        tokens[self.positions >= self.lookups[request]] = 0
        return tokens

    def thinned(self, rate: float) -> AccessStream:
        """Keep the blocks whose key falls into the share `rate`; a smaller share is a part of a larger one."""
        kept = mixed(self.keys) < np.uint64(min(rate * 2.0**64, 2.0**64 - 2**11))
        lengths = np.bincount(self.request[kept], minlength=len(self))
        return replace(self, rate=rate, lengths=lengths, keys=self.keys[kept], positions=self.positions[kept])

    def timed(self, at_s: npt.NDArray[np.float64]) -> AccessStream:
        """Return the stream with other times, in their order; the first request is at 0."""
        order = np.argsort(at_s, kind="stable")
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[order]
        new_starts = np.cumsum(lengths) - lengths
        blocks = np.repeat(starts[order] - new_starts, lengths) + np.arange(len(self.keys))
        return replace(
            self,
            at_s=at_s[order] - (at_s.min() if len(at_s) else 0.0),
            session=self.session[order],
            prompt_tokens=self.prompt_tokens[order],
            lookups=self.lookups[order],
            counted=self.counted[order],
            lengths=lengths,
            keys=self.keys[blocks],
            positions=self.positions[blocks],
        )


def stream_of(
    block_tokens: int,
    at_s: Iterable[float],
    session: Iterable[int],
    prompt_tokens: Iterable[int],
    lookups: Iterable[int],
    lengths: Iterable[int],
    keys: Keys,
    counted: Iterable[bool] | None = None,
) -> AccessStream:
    """Make a stream of whole requests, in the order given."""
    sizes = np.fromiter(lengths, np.int64)
    starts = np.cumsum(sizes) - sizes
    positions = np.arange(len(keys)) - np.repeat(starts, sizes)
    return AccessStream(
        block_tokens=block_tokens,
        rate=1.0,
        at_s=np.fromiter(at_s, np.float64),
        session=np.fromiter(session, np.int64),
        prompt_tokens=np.fromiter(prompt_tokens, np.int64),
        lookups=np.fromiter(lookups, np.int64),
        counted=np.ones(len(sizes), np.bool_) if counted is None else np.fromiter(counted, np.bool_),
        lengths=sizes,
        keys=keys,
        positions=positions.astype(np.int32),
    )


class StreamCollector:
    """Collects parts of a stream in bounded memory: when they hold too many blocks, it samples, twice as sparsely."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._parts: list[AccessStream] = []
        self._blocks = 0
        self._rate = 1.0

    def add(self, part: AccessStream) -> None:
        """Take the next requests."""
        self._append(part)
        while self._blocks > self._max_blocks and self._rate > MIN_RATE:
            self._rate /= 2
            parts, self._parts, self._blocks = self._parts, [], 0
            for each in parts:
                self._append(each)

    def joined(self) -> AccessStream:
        """Return all requests in the order in which they came; raise ScenarioError when there were none."""
        parts, self._parts = self._parts, []
        if not parts:
            raise ScenarioError("there is no request in it, so there is nothing to analyse; check the file")
        return AccessStream(
            block_tokens=parts[0].block_tokens,
            rate=self._rate,
            at_s=np.concatenate([part.at_s for part in parts]),
            session=np.concatenate([part.session for part in parts]),
            prompt_tokens=np.concatenate([part.prompt_tokens for part in parts]),
            lookups=np.concatenate([part.lookups for part in parts]),
            counted=np.concatenate([part.counted for part in parts]),
            lengths=np.concatenate([part.lengths for part in parts]),
            keys=np.concatenate([part.keys for part in parts]),
            positions=np.concatenate([part.positions for part in parts]),
        )

    def _append(self, part: AccessStream) -> None:
        kept = part if part.rate == self._rate else part.thinned(self._rate)
        self._parts.append(kept)
        self._blocks += len(kept.keys)
