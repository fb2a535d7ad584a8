"""The model's own tokenizer, as far as prompts of exact lengths need it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from scenarios.errors import ScenarioError

FILE = "tokenizer.json"


class PromptTokenizer:
    """Counts tokens as the engine does for the inside of a message: without special tokens."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, model: str | Path) -> Self:
        """Load from a model's folder, its tokenizer.json, or a Hugging Face name; raise ScenarioError."""
        path = Path(model)
        if path.is_dir():
            return cls(_from_file(path / FILE), str(model))
        if path.is_file():
            return cls(_from_file(path), str(model))
        if path.is_absolute() or str(model).count("/") > 1 or str(model).startswith("."):
            raise ScenarioError(f"no model at {model}: no such folder; check the path")
        return cls(_from_hub(str(model)), str(model))

    def ids(self, text: str) -> list[int]:
        """Return the token ids of `text`."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def count(self, text: str) -> int:
        """Count the tokens of `text`."""
        return len(self.ids(text))

    @cached_property
    def plain_ids(self) -> tuple[int, ...]:
        """List the ids that are words or pieces of words, in order: no special or added tokens."""
        added = self._tokenizer.get_added_tokens_decoder()
        return tuple(sorted(set(self._tokenizer.get_vocab(with_added_tokens=False).values()) - set(added)))


def _from_file(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ScenarioError(f"{path.parent} has no {FILE}; give the folder of a model that has one")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as problem:  # the library raises nothing narrower
        raise ScenarioError(f"{path} cannot be read as a tokenizer ({problem}); download it again") from problem


def _from_hub(name: str) -> Tokenizer:
    try:
        return Tokenizer.from_pretrained(name)
    except Exception as problem:  # network, name, login: the classes change with the library
        reason = str(problem).strip().split("\n")[0]
        raise ScenarioError(
            f"the tokenizer of {name} is neither a folder here nor to be had from Hugging Face ({reason}); "
            "check the name and the network, set HF_TOKEN for a gated model, or give a model folder"
        ) from problem
