"""Token ids of words: those of the model's tokenizer, and stand-ins for what no tokenizer is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers import Tokenizer, models

from scenarios.analysis.pages import UNKNOWN_IDS
from scenarios.summary import TEMPLATE_TOKENS
from scenarios.tokenizer import PromptTokenizer

Encode = Callable[[str], Sequence[int]]
"""Text to token ids."""
TEMPLATE_IDS = range(UNKNOWN_IDS - TEMPLATE_TOKENS, UNKNOWN_IDS)
"""What a chat template puts around a message, about."""
MADE_UP_WORDS = 32_768
OTHER_WORD = "0"


def made_up_tokenizer() -> PromptTokenizer:
    """Return a tokenizer of words that mean nothing: enough for plans of token ids, whose lengths need no real one."""
    words = {str(number): number for number in range(MADE_UP_WORDS)}
    return PromptTokenizer(Tokenizer(models.WordLevel(words, unk_token=OTHER_WORD)), "a made-up vocabulary")
