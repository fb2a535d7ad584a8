"""Words for recorded blocks: equal blocks get equal tokens, and others part at their first token.

A trace says of a prompt only which blocks it is made of. Each block's words are drawn from its key alone, token by
token, so that a prompt can begin and end anywhere inside a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from scenarios.errors import ScenarioError
from scenarios.model import Api
from scenarios.prompts import PromptWriter
from scenarios.tokenizer import PromptTokenizer

Key = tuple[int, ...]
"""What makes a block the same block: numbers of at least 0."""
Picks = npt.NDArray[np.int64]
"""Tokens, as numbers of words or ids."""

_FEWEST_WORDS = 64
_KEPT_BLOCKS = 8192


class BlockWriter:
    """Writes the blocks of one seed, in words or in ids.

    Two blocks that follow the same one begin with different tokens, while there are enough of them. So prompts with N
    blocks in common have exactly the tokens of these blocks in common.
    """

    def __init__(self, tokenizer: PromptTokenizer, seed: int, api: Api, block_tokens: int) -> None:
        writer = PromptWriter(tokenizer, seed)
        self.block_tokens = block_tokens
        self._tokenizer = tokenizer
        self._seed = seed
        self._words = np.array(writer.single_words) if api == "chat" else None
        self._ids = writer.single_ids
        self._base = len(self._ids) if self._words is None else len(self._words)
        self._first_picks: dict[Key, int] = {}
        self._taken: dict[Key, set[int]] = {}
        self._rest = lru_cache(_KEPT_BLOCKS)(self._draw)
        if self._words is not None and self._base < _FEWEST_WORDS:
            raise ScenarioError(
                f"the tokenizer of {tokenizer.name} has only {self._base} words of one token, too few to write "
                "recorded blocks; use `api: generate`"
            )

    def prompt(self, keys: Sequence[Key], tokens: int) -> Picks:
        """Write the first `tokens` tokens of the blocks `keys`."""
        parts = []
        for before, key in zip([(), *keys], keys, strict=False):
            picks = self._rest(key).copy()
            picks[0] = self._first_pick(before, key, int(picks[0]))
            parts.append(picks)
        return np.concatenate(parts)[:tokens] if parts else np.empty(0, dtype=np.int64)

    def token_ids(self, picks: Picks) -> tuple[int, ...]:
        """Return `picks` as ids."""
        return tuple(self._ids[picks].tolist())

    def text(self, picks: Picks) -> str:
        """Return `picks` as text of as many tokens; raise ScenarioError when it has not."""
        text = "" if self._words is None else " ".join(self._words[picks])
        if self._tokenizer.count(text) != len(picks):
            raise ScenarioError(
                f"the tokenizer of {self._tokenizer.name} counts joined words otherwise than each; use `api: generate`"
            )
        return text

    def _draw(self, key: Key) -> Picks:
        rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))
        return rng.integers(self._base, size=self.block_tokens)

    def _first_pick(self, before: Key, key: Key, wanted: int) -> int:
        """Choose the first token of a block when it is met first: one that no block after the same one has."""
        if key not in self._first_picks:
            taken = self._taken.setdefault(before, set())
            while wanted in taken and len(taken) < self._base:
                wanted = (wanted + 1) % self._base
            taken.add(wanted)
            self._first_picks[key] = wanted
        return self._first_picks[key]
