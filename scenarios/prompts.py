"""Prompts of exact token counts, in words or in token ids: seeded, and different from the first words on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from scenarios.errors import ScenarioError
from scenarios.tokenizer import PromptTokenizer

WORDS_FILE = Path(__file__).with_name("words_en.txt")

_PIECES = (" a", "s", ".", ",", "!", "?", ";", " x", "x", "q", "1")
"""Each adds one token to nearly any text, so a text that is short of a few can be filled up."""
_ATTEMPTS = 64


class PromptWriter:
    """Writes prompts for one seed with one tokenizer.

    Counts are exact: `encode(text, add_special_tokens=False)` has as many tokens as asked for, and so has the
    text inside a chat message, because it begins with a letter and ends without a space. Prompts of different
    numbers differ in their first word, or in the second if the numbers are a multiple of the word count apart.
    """

    def __init__(self, tokenizer: PromptTokenizer, seed: int) -> None:
        words = WORDS_FILE.read_text(encoding="utf-8").split()
        shuffle = np.random.default_rng(seed).permutation
        self._tokenizer = tokenizer
        self._words = [words[i] for i in shuffle(len(words))]
        # Tokens of each word at the beginning and inside of a text. A text is the sum of its words with the
        # tokenizers of chat models that we know, but no text goes out unchecked.
        self._first_costs = np.array([tokenizer.count(word) for word in self._words])
        self._costs = np.array([tokenizer.count(f"a {word}") - tokenizer.count("a") for word in self._words])
        self._fillers = [word for word, cost in zip(self._words, self._costs, strict=True) if cost == 1]
        self._ids: npt.NDArray[np.int64] = shuffle(np.array(tokenizer.plain_ids))

    def text(self, rng: np.random.Generator, tokens: int, number: int | None = None) -> str:
        """Write a text of exactly `tokens` tokens, with first words of its own if it has a `number`.

        Raise ScenarioError when the tokenizer has no such text.
        """
        picks = _opened(rng.integers(len(self._words), size=tokens), number, len(self._words))
        costs = self._costs[picks]
        costs[:1] = self._first_costs[picks[:1]]
        fitting = int(np.searchsorted(np.cumsum(costs), tokens, side="right"))
        words = [self._words[i] for i in picks[:fitting]]
        short = tokens - int(costs[:fitting].sum())
        if self._fillers:
            words += [self._fillers[i] for i in rng.integers(len(self._fillers), size=short)]
        for _ in range(_ATTEMPTS):
            text = self._filled_up(" ".join(words), tokens)
            if text is not None:
                return text
            words = words[:-1]
        raise ScenarioError(
            f"the tokenizer of {self._tokenizer.name} gives no text of exactly {tokens} tokens; use `api: generate`"
        )

    def token_ids(self, rng: np.random.Generator, tokens: int, number: int | None = None) -> tuple[int, ...]:
        """Draw `tokens` ids of plain words and pieces, the first ones its own if there is a `number`."""
        picks = _opened(rng.integers(len(self._ids), size=tokens), number, len(self._ids))
        return tuple(self._ids[picks].tolist())

    def _filled_up(self, text: str, tokens: int) -> str | None:
        """Add pieces until `text` has `tokens` tokens; None when it is too long or no piece fits."""
        have = self._tokenizer.count(text)
        while have < tokens:
            longer = ((text + piece).lstrip() for piece in _PIECES)
            counted = ((candidate, self._tokenizer.count(candidate)) for candidate in longer)
            text, have = next(((c, n) for c, n in counted if have < n <= tokens), (text, tokens + 1))
        return text if have == tokens else None


def _opened(picks: npt.NDArray[np.int64], number: int | None, base: int) -> npt.NDArray[np.int64]:
    """Let the first two picks spell `number` in base `base`, lowest digit first."""
    if number is not None:
        digits = [number % base, number // base % base][: len(picks)]
        picks[: len(digits)] = digits
    return picks
