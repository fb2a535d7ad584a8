"""Tokenizers made on the spot, for tests of exact lengths."""

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from scenarios.prompts import WORDS_FILE
from scenarios.tokenizer import PromptTokenizer

SPECIAL_TOKENS = ["<|im_start|>", "<|im_end|>"]
UNKNOWN = "<unk>"


def byte_level(vocabulary: int = 1024) -> Tokenizer:
    """Train a byte-level BPE (like that of Qwen and Llama 3) on the words that prompts are made of."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(_words())], trainer)
    return tokenizer


def metaspace(vocabulary: int = 1024) -> Tokenizer:
    """Train a BPE over text with visible spaces (like that of Llama 2)."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator([*_words(), "."], trainer)
    return tokenizer


def prompt_tokenizer(vocabulary: int = 1024) -> PromptTokenizer:
    """Wrap a byte-level BPE."""
    return PromptTokenizer(byte_level(vocabulary), f"byte-level-{vocabulary}")


def _words() -> list[str]:
    return WORDS_FILE.read_text(encoding="utf-8").split()
