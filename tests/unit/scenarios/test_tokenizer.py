"""Tokenizers come from folders, files and the hub; what is missing is said."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from scenarios.errors import ScenarioError
from scenarios.tokenizer import PromptTokenizer
from tests.support.bpe import SPECIAL_TOKENS, byte_level, prompt_tokenizer


def _message(model: str | Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        PromptTokenizer.load(model)
    return str(caught.value)


def test_load_from_folder_and_file(tmp_path: Path) -> None:
    """A model's folder and its tokenizer.json give the same tokenizer."""
    byte_level().save(str(tmp_path / "tokenizer.json"))
    text = "the quick answer"
    expected = len(byte_level().encode(text).ids)
    assert PromptTokenizer.load(tmp_path).count(text) == expected
    assert PromptTokenizer.load(str(tmp_path / "tokenizer.json")).count(text) == expected


def test_special_tokens_are_not_added() -> None:
    """What a tokenizer puts around a text does not belong to the inside of a message."""
    tokenizer = byte_level()
    begin = tokenizer.token_to_id(SPECIAL_TOKENS[0])
    processor = f"{SPECIAL_TOKENS[0]} $A"
    tokenizer.post_processor = TemplateProcessing(
        single=processor, pair=f"{processor} $B", special_tokens=[(SPECIAL_TOKENS[0], begin)]
    )
    assert len(tokenizer.encode("answer").ids) == PromptTokenizer(tokenizer, "t").count("answer") + 1


def test_plain_ids_leave_out_special_tokens() -> None:
    """Random ids never end a message or begin another one."""
    tokenizer = byte_level()
    tokenizer.add_tokens(["<tool>"])
    wrapped = PromptTokenizer(tokenizer, "t")
    special = {tokenizer.token_to_id(token) for token in [*SPECIAL_TOKENS, "<tool>"]}
    assert special.isdisjoint(wrapped.plain_ids)
    assert len(wrapped.plain_ids) == tokenizer.get_vocab_size() - len(special)
    assert list(wrapped.plain_ids) == sorted(prompt_tokenizer().plain_ids)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """No folder, no tokenizer.json, and one that is damaged."""
    damaged = tmp_path / "tokenizer.json"
    assert _message(tmp_path) == (f"{tmp_path} has no tokenizer.json; give the folder of a model that has one")
    damaged.write_text("{")
    assert _message(tmp_path).startswith(f"{damaged} cannot be read as a tokenizer (")
    assert _message(tmp_path / "x") == f"no model at {tmp_path / 'x'}: no such folder; check the path"
    assert _message("./x").startswith("no model at ./x")


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the hub cannot serve ends in what the user can do."""

    def offline(name: str) -> Tokenizer:
        raise OSError(f"cannot find {name}\nin the cache")

    monkeypatch.setattr("scenarios.tokenizer.Tokenizer", type("Offline", (), {"from_pretrained": offline}))
    assert _message("Qwen/Qwen3-8B") == (
        "the tokenizer of Qwen/Qwen3-8B is neither a folder here nor to be had from Hugging Face "
        "(cannot find Qwen/Qwen3-8B); check the name and the network, set HF_TOKEN for a gated model, "
        "or give a model folder"
    )
