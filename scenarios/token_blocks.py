"""Prompts of token ids as block ids: equal ids exactly where prompts have begun with equal tokens."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

ID_BITS = 53
"""What every reader of JSON holds exactly; two of ten million different blocks are equal with a chance of 0.6 %."""


class TokenBlocks:
    """The blocks of a growing prompt. Each id hashes its tokens and all before them, under `salt`."""

    def __init__(self, block_tokens: int, salt: bytes = b"") -> None:
        self._block_tokens = block_tokens
        self._salt = salt
        self._chain = b""
        self._whole: list[int] = []
        self._rest = array("q")

    def extend(self, token_ids: Iterable[int]) -> None:
        """Append tokens to the prompt."""
        self._rest.extend(token_ids)
        size = self._block_tokens
        whole = len(self._rest) // size
        for start in range(0, whole * size, size):
            self._chain = self._digest(self._rest[start : start + size])
            self._whole.append(block_number(self._chain))
        del self._rest[: whole * size]

    def ids(self) -> tuple[int, ...]:
        """Return the blocks so far; the last one may be partly filled."""
        if not self._rest:
            return tuple(self._whole)
        return (*self._whole, block_number(self._digest(self._rest)))

    def copy(self) -> TokenBlocks:
        """Return the same prompt, to be continued otherwise."""
        other = TokenBlocks(self._block_tokens, self._salt)
        other._chain, other._whole, other._rest = self._chain, list(self._whole), array("q", self._rest)
        return other

    def __len__(self) -> int:
        """Count the tokens so far."""
        return len(self._whole) * self._block_tokens + len(self._rest)

    def _digest(self, tokens: array[int]) -> bytes:
        return hashlib.blake2b(self._chain + tokens.tobytes(), key=self._salt, digest_size=16).digest()


def block_number(digest: bytes) -> int:
    """Return a block id of `ID_BITS` bits."""
    return int.from_bytes(digest[:8], "big") >> (64 - ID_BITS)
