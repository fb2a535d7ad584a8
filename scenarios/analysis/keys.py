"""What a block of KV is the same as: the same ids after the same prefix.

The key of a block is a rolling hash of everything from the first token to its end, as KV depends on all of it. Equal
prefixes give equal keys in every process; unequal ones collide with a chance of one in 2^64.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mixed(values: Keys) -> Keys:
    """Scatter 64-bit values so that every bit of the result depends on every bit of the value (SplitMix64)."""
    values = values + _STEP
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def prefix_sums(ids: Keys, first: int = 0, start: int = 0) -> Keys:
    """Return the rolling hash after each of `ids`, the first of which stands at position `first` after hash `start`."""
    positions = np.arange(first, first + len(ids), dtype=np.uint64)
    return np.uint64(start) + np.cumsum(mixed(ids + mixed(positions)), dtype=np.uint64)


def block_keys(ids: Keys, lengths: Integers, seeds: Keys) -> Keys:
    """Return the keys of the blocks of many requests: `ids` of all of them in a row, `lengths` of each.

    Requests of different seeds share no key: that is how ids that are numbered in each session anew stay apart.
    """
    ends = np.cumsum(lengths)
    request = np.repeat(np.arange(len(lengths)), lengths)
    positions = (np.arange(len(ids)) - (ends - lengths)[request]).astype(np.uint64)
    sums = np.cumsum(mixed(ids + mixed(positions)), dtype=np.uint64)
    before = np.concatenate([np.zeros(1, np.uint64), sums])[ends - lengths]
    return mixed(sums - before[request] + seeds[request])


def seed_of(name: str) -> int:
    """Return a number for a session's name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
