"""Prompts of exact token counts, in words or in token ids: seeded, and different from the first words on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from scenarios.errors import ScenarioError
from scenarios.tokenizer import PromptTokenizer

Script = Literal["en", "zh", "code"]
"""What the words of a text are."""

_FOLDER = Path(__file__).parent
WORDS_FILES: dict[Script, Path] = {
    "en": _FOLDER / "words_en.txt",
    "zh": _FOLDER / "words_zh.txt",
    "code": _FOLDER / "words_code.txt",
}
WORDS_FILE = WORDS_FILES["en"]

_PIECES = (" a", "s", ".", ",", "!", "?", ";", " x", "x", "q", "1")
"""Each adds one token to nearly any text, so a text that is short of a few can be filled up."""
_PIECES_ZH = ("\uff0c\u4f60\u597d", "\uff0c\u597d", "\u7684", "\u3002", *_PIECES)
_ATTEMPTS = 64
_PHRASES = 2000
"""Chinese is written without spaces, and tokenizers merge across words; so its units are phrases between commas."""
LEAD = "a"
"""The first word of a message that begins with shared blocks, so that each of them stands after a space."""


class PromptWriter:
    """Writes prompts for one seed with one tokenizer.

    Counts are exact: `encode(text, add_special_tokens=False)` has as many tokens as asked for, and so has the
    text inside a chat message, because it begins with a letter and ends without a space. Prompts of different
    numbers differ in their first word, or in the second if the numbers are a multiple of the word count apart.
    """

    def __init__(self, tokenizer: PromptTokenizer, seed: int, script: Script = "en") -> None:
        shuffle = np.random.default_rng(seed).permutation
        words = _units(script)
        self._tokenizer = tokenizer
        self._glue, probe = ("\uff0c", "\u597d") if script == "zh" else (" ", "a")
        self._pieces = _PIECES_ZH if script == "zh" else _PIECES
        self._words = [words[i] for i in shuffle(len(words))]
        # Tokens of each word at the beginning and inside of a text. A text is the sum of its words with the
        # tokenizers of chat models that we know, but no text goes out unchecked.
        self._first_costs = np.array([tokenizer.count(word) for word in self._words])
        self._costs = self._costs_after(probe, self._glue)
        self._block_costs = self._costs if self._glue == " " else self._costs_after(LEAD, " ")
        self._fillers = [word for word, cost in zip(self._words, self._costs, strict=True) if cost == 1]
        self._ids: npt.NDArray[np.int64] = shuffle(np.array(tokenizer.plain_ids))

    @property
    def single_ids(self) -> npt.NDArray[np.int64]:
        """Return all ids that prompts are made of."""
        return self._ids

    @property
    def single_words(self) -> list[str]:
        """List the words that are one token, at the beginning of a text and after a space."""
        single = (self._costs == 1) & (self._first_costs == 1)
        return [word for word, good in zip(self._words, single, strict=True) if good]

    def text(self, rng: np.random.Generator, tokens: int, number: int | None = None, *, lead: str = "") -> str:
        """Write a text of exactly `tokens` tokens, with first words of its own if it has a `number`.

        With a `lead` the text is to stand after it and a space, and `tokens` is what it adds there. Raise ScenarioError
        when the tokenizer has no such text.
        """
        picks = _opened(rng.integers(len(self._words), size=tokens), number, len(self._words))
        costs = self._costs[picks]
        costs[:1] = (self._block_costs if lead else self._first_costs)[picks[:1]]
        fitting = int(np.searchsorted(np.cumsum(costs), tokens, side="right"))
        words = [self._words[i] for i in picks[:fitting]]
        short = tokens - int(costs[:fitting].sum())
        if self._fillers:
            words += [self._fillers[i] for i in rng.integers(len(self._fillers), size=short)]
        before = f"{lead} " if lead else ""
        target = tokens + (self._tokenizer.count(lead) if lead else 0)
        for _ in range(_ATTEMPTS):
            text = self._filled_up(before + (self._glue.join(words) or lead), target)
            if text is not None:
                return text[len(before) :]
            words = words[:-1]
        raise ScenarioError(
            f"the tokenizer of {self._tokenizer.name} gives no text of exactly {tokens} tokens; use `api: generate`"
        )

    def token_ids(self, rng: np.random.Generator, tokens: int, number: int | None = None) -> tuple[int, ...]:
        """Draw `tokens` ids of plain words and pieces, the first ones its own if there is a `number`."""
        picks = _opened(rng.integers(len(self._ids), size=tokens), number, len(self._ids))
        return tuple(self._ids[picks].tolist())

    def _costs_after(self, before: str, glue: str) -> npt.NDArray[np.int64]:
        joined = [self._tokenizer.count(before + glue + word) for word in self._words]
        return np.array(joined) - self._tokenizer.count(before)

    def _filled_up(self, text: str, tokens: int) -> str | None:
        """Add pieces until `text` has `tokens` tokens; None when it is too long or no piece fits."""
        have = self._tokenizer.count(text)
        while have < tokens:
            longer = ((text + piece).lstrip(" \uff0c\u3002") for piece in self._pieces)
            counted = ((candidate, self._tokenizer.count(candidate)) for candidate in longer)
            text, have = next(((c, n) for c, n in counted if have < n <= tokens), (text, tokens + 1))
        return text if have == tokens else None


def _units(script: Script) -> list[str]:
    """List what a text is put together from: words, or phrases of one to four Chinese words."""
    words = WORDS_FILES[script].read_text(encoding="utf-8").split()
    if script != "zh":
        return words
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 4, size=_PHRASES, endpoint=True)
    phrases = ("".join(words[i] for i in rng.integers(len(words), size=n)) for n in lengths)
    return list(dict.fromkeys(phrases))


def _opened(picks: npt.NDArray[np.int64], number: int | None, base: int) -> npt.NDArray[np.int64]:
    """Let the first two picks spell `number` in base `base`, lowest digit first."""
    if number is not None:
        digits = [number % base, number // base % base][: len(picks)]
        picks[: len(digits)] = digits
    return picks
