"""From the tokens of a conversation to pages of KV, as a server that caches whole pages keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scenarios.analysis.keys import Keys, mixed, prefix_sums
from scenarios.analysis.stream import AccessStream, stream_of

UNKNOWN_IDS = 2**40
"""Tokens from here on are nobody's vocabulary: replies whose words are not known, and the template around messages."""


@dataclass(frozen=True, slots=True)
class History:
    """A conversation so far: the keys of its full pages, and what is needed to go on."""

    page_tokens: int
    tokens: int = 0
    total: int = 0
    """Rolling hash of all tokens."""
    keys: Keys = field(default_factory=lambda: np.empty(0, np.uint64))

    def extended(self, ids: Sequence[int]) -> History:
        """Return the conversation with `ids` after it."""
        if not len(ids):
            return self
        sums = prefix_sums(np.asarray(ids, np.uint64), self.tokens, self.total)
        first_full = self.page_tokens - 1 - self.tokens % self.page_tokens
        keys = np.concatenate([self.keys, mixed(sums[first_full :: self.page_tokens])])
        return History(self.page_tokens, self.tokens + len(ids), int(sums[-1]), keys)


@dataclass(frozen=True, slots=True)
class PagedRequest:
    """One request of a conversation: what it asks for, and what it leaves in the cache."""

    at_s: float
    session: int
    prompt: History
    cached: History
    """The prompt with the reply that was generated."""
    counted: bool = True


class Unknown:
    """Gives token ids to words that are not known: never the same twice."""

    def __init__(self) -> None:
        self._next = UNKNOWN_IDS

    def ids(self, tokens: int) -> Sequence[int]:
        """Return ids for so many tokens."""
        first, self._next = self._next, self._next + tokens
        return range(first, first + tokens)


def pages_stream(requests: Sequence[PagedRequest], page_tokens: int) -> AccessStream:
    """Make the stream of `requests`, in their order.

    A server computes at least the last token of each prompt, so that a page that ends with it is never taken from the
    cache.
    """
    return stream_of(
        block_tokens=page_tokens,
        at_s=(request.at_s for request in requests),
        session=(request.session for request in requests),
        prompt_tokens=(request.prompt.tokens for request in requests),
        lookups=(max(0, request.prompt.tokens - 1) // page_tokens for request in requests),
        lengths=(len(request.cached.keys) for request in requests),
        keys=np.concatenate([request.cached.keys for request in requests]) if requests else np.empty(0, np.uint64),
        counted=(request.counted for request in requests),
    )
