"""Prompts have exactly the tokens that were asked for, and begin with words of their own."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from scenarios.errors import ScenarioError
from scenarios.prompts import LEAD, WORDS_FILE, WORDS_FILES, PromptWriter, Script
from scenarios.tokenizer import PromptTokenizer
from tests.support.bpe import SPECIAL_TOKENS, byte_level, metaspace

WORDS = WORDS_FILE.read_text(encoding="utf-8").split()
TOKENIZERS = {
    "bytes alone": byte_level(258),
    "few merges": byte_level(500),
    "many merges": byte_level(2048),
    "visible spaces": metaspace(),
}
WRITERS = {name: PromptWriter(PromptTokenizer(tokenizer, name), seed=1) for name, tokenizer in TOKENIZERS.items()}

lengths = st.one_of(st.integers(1, 40), st.integers(1, 3000))


def test_the_words_are_clean() -> None:
    """The list has no word twice, is sorted, and is plain lower case."""
    assert sorted(set(WORDS)) == WORDS
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@pytest.mark.parametrize(("script", "letters"), [("zh", "\u4e00\u9fff"), ("code", "az")])
def test_other_words_are_clean(script: Script, letters: str) -> None:
    """The other lists have no word twice, are sorted, and hold letters of their script alone."""
    words = WORDS_FILES[script].read_text(encoding="utf-8").split()
    assert sorted(set(words)) == words
    assert all(letters[0] <= letter <= letters[1] for word in words for letter in word)


@pytest.mark.parametrize("script", ["zh", "code"])
@pytest.mark.parametrize("name", ["bytes alone", "many merges"])
@pytest.mark.parametrize("lead", ["", LEAD])
@settings(deadline=None, max_examples=40)
@given(tokens=lengths, seed=st.integers(0, 2**32), number=st.none() | st.integers(0, 10**7))
def test_other_scripts_are_exact(
    script: Script, name: str, lead: str, tokens: int, seed: int, number: int | None
) -> None:
    """Chinese and code have exactly the tokens too, at the beginning of a message and after shared blocks."""
    tokens = max(tokens, 2) if lead else tokens  # bytes alone need one for the space and one for a letter
    tokenizer = PromptTokenizer(TOKENIZERS[name], name)
    text = _writer(name, script).text(np.random.default_rng(seed), tokens, number, lead=lead)
    added = tokenizer.count(f"{lead} {text}") - tokenizer.count(lead) if lead else tokenizer.count(text)
    assert added == tokens
    assert text == text.strip()
    assert text[0].isalpha()


@cache
def _writer(name: str, script: Script) -> PromptWriter:
    return PromptWriter(PromptTokenizer(TOKENIZERS[name], name), 1, script)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None)
@given(tokens=lengths, seed=st.integers(0, 2**32), number=st.none() | st.integers(0, 10**7))
def test_text_has_exactly_the_tokens(name: str, tokens: int, seed: int, number: int | None) -> None:
    """Tolerance 0, at every length, for each kind of tokenizer."""
    text = WRITERS[name].text(np.random.default_rng(seed), tokens, number)
    assert len(TOKENIZERS[name].encode(text, add_special_tokens=False).ids) == tokens
    assert text == text.strip()
    assert text[0].isalpha()


@settings(deadline=None)
@given(tokens=lengths, seed=st.integers(0, 2**32))
def test_count_holds_inside_a_chat_message(tokens: int, seed: int) -> None:
    """The tokens of a message are those of its template and of its text."""
    tokenizer = TOKENIZERS["many merges"]
    begin, end = f"{SPECIAL_TOKENS[0]}user\n", f"{SPECIAL_TOKENS[1]}\n"
    text = WRITERS["many merges"].text(np.random.default_rng(seed), tokens)
    around = len(tokenizer.encode(begin).ids) + len(tokenizer.encode(end).ids)
    assert len(tokenizer.encode(begin + text + end).ids) == tokens + around


@settings(deadline=None)
@given(tokens=lengths, seed=st.integers(0, 2**32))
def test_ids_are_plain_and_exact(tokens: int, seed: int) -> None:
    """Drawn ids are as many as asked for, and none of them is special."""
    ids = WRITERS["many merges"].token_ids(np.random.default_rng(seed), tokens)
    special = {TOKENIZERS["many merges"].token_to_id(token) for token in SPECIAL_TOKENS}
    assert len(ids) == tokens
    assert special.isdisjoint(ids)
    assert all(type(i) is int for i in ids)


@settings(max_examples=20, deadline=None)
@given(first=st.integers(0, 10**6), second=st.integers(0, 10**6))
def test_numbers_part_prompts_early(first: int, second: int) -> None:
    """Two numbers give prompts that differ in the first two words, or the first two ids."""
    writer = WRITERS["many merges"]
    texts = [writer.text(np.random.default_rng(9), 50, number).split()[:2] for number in (first, second)]
    ids = [writer.token_ids(np.random.default_rng(9), 50, number)[:2] for number in (first, second)]
    assert (texts[0] == texts[1]) == (first == second)
    assert (ids[0] == ids[1]) == (first == second)


def test_a_thousand_numbers_have_a_thousand_first_words() -> None:
    """Up to the number of words, the first word alone tells prompts apart."""
    writer = WRITERS["many merges"]
    firsts = {writer.text(np.random.default_rng(9), 12, number).split()[0] for number in range(1000)}
    assert len(firsts) == 1000


def test_seeds_have_words_of_their_own() -> None:
    """The same stream and number begin otherwise under another seed: no warm cache from the last repeat."""
    tokenizer = PromptTokenizer(TOKENIZERS["many merges"], "t")
    texts = {PromptWriter(tokenizer, seed).text(np.random.default_rng(9), 50, 0) for seed in range(20)}
    assert len({text.split()[0] for text in texts}) > 15


def test_a_tokenizer_without_exact_texts_is_refused() -> None:
    """A tokenizer that drops all that we write gives an error, not an endless search."""
    deaf = PromptTokenizer(Tokenizer(models.BPE(vocab={"\u4f60": 0}, merges=[])), "deaf")
    with pytest.raises(ScenarioError) as caught:
        PromptWriter(deaf, 0).text(np.random.default_rng(0), 5)
    assert str(caught.value) == "the tokenizer of deaf gives no text of exactly 5 tokens; use `api: generate`"
