"""Small loads for the analysis, and a cache that is slow and plainly right."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from scenarios.analysis import Assumptions, Load, load_of_trace
from scenarios.analysis.curve import HitCurve, hit_curve
from scenarios.analysis.distances import reuse
from scenarios.analysis.stream import AccessStream
from scenarios.analysis.weights import token_weights
from scenarios.trace import Clock, Scope, Trace, TraceInfo, TraceRequest

BLOCK_TOKENS = 10
Requests = Sequence[Sequence[int]]
"""The block ids of each request."""


def request(
    ids: Sequence[int], at_s: float | None = 0.0, session: str = "s", turn: int = 0, input_tokens: int | None = None
) -> TraceRequest:
    """Make a request of whole blocks."""
    tokens = len(ids) * BLOCK_TOKENS if input_tokens is None else input_tokens
    return TraceRequest(session, turn, tokens, 1, at_s=at_s, block_ids=tuple(ids))


def trace_of(
    requests: Iterable[TraceRequest],
    *,
    clock: Clock = Clock.TRACE,
    scope: Scope | None = Scope.GLOBAL,
    block_tokens: int | None = BLOCK_TOKENS,
    sessions: bool = True,
) -> Trace:
    """Make a trace that is read from memory."""
    kept = tuple(requests)
    return Trace(TraceInfo("made", clock, sessions, block_tokens, scope), lambda: iter(kept))


def load_of(requests: Requests, *, max_blocks: int = 1_000_000) -> Load:
    """Make the load of requests that come one second after another, each a session of its own."""
    made = (request(ids, at_s=float(number), session=str(number)) for number, ids in enumerate(requests))
    return load_of_trace(trace_of(made), assumed=Assumptions(), page_tokens=BLOCK_TOKENS, max_blocks=max_blocks)


def curve_of(stream: AccessStream) -> HitCurve:
    """Return the curve of the counted requests."""
    return hit_curve(stream, reuse(stream), token_weights(stream, stream.counted))


def lru_hit_blocks(requests: Requests, capacity: int) -> int:
    """Play `requests` against an LRU cache of `capacity` blocks and count the blocks that hit.

    A hit is the longest run of leading blocks that are cached; then the blocks are touched, tail to head.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for ids in requests:
        for block in ids:
            if block not in cache:
                break
            hits += 1
        for block in reversed(ids):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits
