"""Exact LRU stack distances (Mattson) of all blocks at once, in numpy.

The stack distance of a block is how many other blocks were used since its last use. An LRU cache of C blocks holds it
exactly when that is less than C, so one pass answers for caches of every size.

A request looks its blocks up first and touches them then, tail to head: in a prefix tree the leaves go before their
roots. As a key stands for its whole prefix, a block was never used later than the ones before it: distances grow from
head to tail, and the blocks that hit are always a leading run.

For the touch at t, whose request begins at r and whose block was last touched at p, the distance is the touches in
(p, r) less those that touch again a block of (p, r). The latter are the touches before r whose own last touch is after
p: an inversion count of the sequence of last touches. Touches of one request count for nothing among themselves, as
tail to head their last touches grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.analysis.keys import Keys
from scenarios.analysis.stream import AccessStream

Indices = npt.NDArray[np.int32]

NEVER = np.int32(2**31 - 1)
"""Distance of a block that was not used before."""


@dataclass(frozen=True)
class Reuse:
    """For each block of a stream, when and where it was used before."""

    distance: Indices
    """Other blocks used since; NEVER when it is new."""
    previous: Indices
    """Request that used it last; -1 when it is new."""


def reuse(stream: AccessStream) -> Reuse:
    """Find the last use of every block of `stream` and its stack distance."""
    request = stream.request
    ends = np.cumsum(stream.lengths)
    starts = (ends - stream.lengths)[request].astype(np.int32)
    touched = (starts + ends[request] - 1 - np.arange(len(request))).astype(np.int32)
    """Where the block at an index is touched; the same map leads back."""
    last = last_touches(stream.keys[touched])
    distance = stack_distances(last, starts)
    previous = np.where(last < 0, np.int32(-1), request[last])
    return Reuse(distance[touched], previous[touched])


def last_touches(keys: Keys) -> Indices:
    """Return for each place where the same key stood last before it, or -1."""
    order = np.argsort(keys, kind="stable").astype(np.int32)
    again = keys[order[1:]] == keys[order[:-1]]
    last = np.full(len(keys), -1, np.int32)
    last[order[1:][again]] = order[:-1][again]
    return last


def stack_distances(last: Indices, starts: Indices) -> Indices:
    """Return the distance of each touch, of which `last` is the last touch and `starts` where its request begins."""
    again = np.flatnonzero(last >= 0)
    came_from = last[again]
    taken = np.zeros(len(last), np.int32)
    taken[came_from] = 1
    rank = (np.cumsum(taken, dtype=np.int32) - 1)[came_from]
    distance = np.full(len(last), NEVER, np.int32)
    distance[again] = starts[again] - 1 - came_from - larger_before(rank)
    return distance


def larger_before(ranks: Indices) -> Indices:
    """Count for each of `ranks`, some order of 0..n-1, the larger ones that stand before it.

    From the highest bit down, ranks that agree in the bits so far stand together in their first order. Of two such, one
    with a 1 before one with a 0 is an inversion, and it shows at exactly one level. Groups of a permutation begin at
    known places, so that a level is a few passes over the arrays: n log n in all.
    """
    size = len(ranks)
    asked, counts = ranks, np.zeros(size, np.int32)
    for bit in range(max(0, size - 1).bit_length() - 1, -1, -1):
        one = (ranks >> bit) & 1
        group = (ranks >> (bit + 1)) << (bit + 1)
        ones = np.cumsum(one, dtype=np.int32) - one
        ones -= ones[group]
        zeros_first = np.where(one == 1, group + (1 << bit) + ones, np.arange(size, dtype=np.int32) - ones)
        counts += np.where(one == 1, np.int32(0), ones)
        moved = np.empty_like(ranks)
        moved[zeros_first] = ranks
        ranks = moved
        moved = np.empty_like(counts)
        moved[zeros_first] = counts
        counts = moved
    return counts[asked]
