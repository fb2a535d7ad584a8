"""Traces without words: nothing that was said is left, all that a cache sees is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.anonymise import BLOCK_TOKENS, anonymise
from scenarios.readers import open_trace
from scenarios.summary import TEMPLATE_TOKENS
from scenarios.trace import Clock, Scope, TraceError
from scenarios.trace_file import TraceTotals, read_sessions
from tests.support.bpe import prompt_tokenizer
from tests.support.traces import CONVERSATION, few_sessions, infinite_hit_rate, json_lines

TOKENIZER = prompt_tokenizer()
SYSTEM = "Zyxwtask: serve Mirabella Quonsworth of Blackheath politely, whatever she may ask you about her bicycle. " * 3
CHATS = [
    {
        "session_id": f"customer-{name}",
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{name} wants to know why the gearbox squeaks"},
            {"role": "assistant", "content": f"Because, dear {name}, nobody oiled it since Whitsun"},
            {"role": "user", "content": "Thanks; and the saddle?"},
        ],
        "timestamp": 1_700_000_000 + number,
        "user": f"{name}@example.org",
        "secretkey": "sk-Gx81kPq",
    }
    for number, name in enumerate(["Ottokar", "Philippa", "Ottokar-Secundus"])
]


def words_of(data: Any) -> set[str]:
    """Collect the words of all texts, names of keys apart."""
    if isinstance(data, dict):
        return set().union(*(words_of(value) for value in data.values()))
    if isinstance(data, list):
        return set().union(*map(words_of, data))
    return {word for word in re.findall(r"\w+", str(data)) if len(word) > 3 and not word.isdigit()}


def test_no_word_is_left(tmp_path: Path) -> None:
    """No word, name or id of the input is in the output, neither as it stands nor in another case."""
    anonymise(open_trace(json_lines(tmp_path / "in", CHATS)), tmp_path / "out", TOKENIZER)
    output = (tmp_path / "out").read_text(encoding="utf-8").lower()
    keys = {"user", "system", "assistant"}  # roles: none of them is in the output either, see below
    assert words_of(CHATS) > {"Quonsworth", "Ottokar", "customer", "1kPq"} - {"1kPq"}
    assert not [word for word in words_of(CHATS) - keys if word.lower() in output]
    assert '"role"' not in output
    assert str(tmp_path) not in output


def test_lengths_times_and_sharing_stay(tmp_path: Path) -> None:
    """Lengths are the tokenizer's with 5 for a message's template; the system prompt's whole blocks are shared."""
    anonymise(open_trace(json_lines(tmp_path / "in", CHATS)), tmp_path / "out", TOKENIZER)
    trace = open_trace(tmp_path / "out")
    assert (trace.info.block_tokens, trace.info.scope, trace.info.clock) == (BLOCK_TOKENS, Scope.GLOBAL, Clock.TRACE)
    one, two, three = read_sessions(tmp_path / "out")
    assert [session.session_id for session in (one, two, three)] == ["s0", "s1", "s2"]
    assert [session.start_s for session in (one, two, three)] == [0.0, 1.0, 2.0]
    system = TOKENIZER.count(SYSTEM) + TEMPLATE_TOKENS
    texts = [message["content"] for message in CHATS[0]["messages"]]  # type: ignore[attr-defined]
    lengths = [TOKENIZER.count(text) + TEMPLATE_TOKENS for text in texts]
    assert [turn.input_tokens for turn in one.turns] == [sum(lengths)]
    shared = [a == b for a, b in zip(one.turns[0].block_ids, two.turns[0].block_ids, strict=False)]
    assert shared.index(False) == (system + TEMPLATE_TOKENS) // BLOCK_TOKENS
    assert not any(shared[shared.index(False) :])


MESSAGES = st.lists(st.sampled_from(["alpha beta " * 9, "gamma " * 30, "delta", ""]), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_prefixes_are_shared_exactly_as_their_tokens(
    tmp_path_factory: pytest.TempPathFactory, chats: list[list[str]]
) -> None:
    """Two prompts have as many first blocks in common as whole blocks of equal first tokens."""
    folder = tmp_path_factory.mktemp("t")
    rows = [
        {"messages": [{"role": "user", "content": text} for text in texts], "id": n} for n, texts in enumerate(chats)
    ]
    anonymise(open_trace(json_lines(folder / "in", rows)), folder / "out", TOKENIZER)
    sessions = list(read_sessions(folder / "out"))
    tokens = [[token for text in texts for token in [-1] * TEMPLATE_TOKENS + TOKENIZER.ids(text)] for texts in chats]
    assert [session.turns[0].input_tokens for session in sessions] == [len(ids) for ids in tokens]
    for mine, my_tokens in zip(sessions, tokens, strict=True):
        for other, their_tokens in zip(sessions, tokens, strict=True):
            common = next(
                (n for n, (a, b) in enumerate(zip(my_tokens, their_tokens, strict=False)) if a != b),
                min(len(my_tokens), len(their_tokens)),
            )
            blocks = list(zip(mine.turns[0].block_ids, other.turns[0].block_ids, strict=False))
            equal = next((n for n, (a, b) in enumerate(blocks) if a != b), len(blocks))
            both_end_there = my_tokens == their_tokens
            assert equal == (len(blocks) if both_end_there else common // BLOCK_TOKENS)


def test_replies_join_the_history(tmp_path: Path) -> None:
    """A reply that is recorded, beside its prompt or only in the next one, is in the prompts after it."""
    user = {"role": "user", "content": "one two three"}
    reply = {"role": "assistant", "content": "four five"}
    rows = [{"messages": [user]}, {"messages": [user, reply, user]}]
    anonymise(open_trace(json_lines(tmp_path / "in", rows)), tmp_path / "out", TOKENIZER)
    (session,) = read_sessions(tmp_path / "out")
    prompt, answer = TOKENIZER.count("one two three") + TEMPLATE_TOKENS, TOKENIZER.count("four five")
    assert [turn.input_tokens for turn in session.turns] == [prompt, 2 * prompt + answer + TEMPLATE_TOKENS]
    assert [turn.output_tokens for turn in session.turns] == [answer, None]


@pytest.mark.parametrize("scope", list(Scope))
def test_traces_of_numbers_keep_their_sharing(scope: Scope, tmp_path: Path) -> None:
    """Blocks get other ids, requests stay what they were, and an endless cache hits as often."""
    before = open_trace(CONVERSATION if scope is Scope.GLOBAL else few_sessions(tmp_path / "in"))
    assert before.info.scope is scope
    totals = anonymise(before, tmp_path / "out", None)
    after = open_trace(tmp_path / "out")
    old, new = list(before.requests()), list(after.requests())
    assert totals.requests == len(old) == len(new)
    assert infinite_hit_rate(after) == infinite_hit_rate(before)
    assert sorted(r.input_tokens or 0 for r in new) == sorted(r.input_tokens or 0 for r in old)
    assert len({r.session_id for r in new}) == len({r.session_id for r in old})
    assert not {b for r in new for b in r.block_ids} & {b for r in old for b in r.block_ids}


def test_two_files_have_nothing_in_common(tmp_path: Path) -> None:
    """The salt is another each time, so that no guess can be tested and files cannot be compared."""
    for name in ("one", "two"):
        anonymise(open_trace(json_lines(tmp_path / "in", CHATS)), tmp_path / name, TOKENIZER)
    one, two = ({b for r in open_trace(tmp_path / name).requests() for b in r.block_ids} for name in ("one", "two"))
    assert len(one) == len(two) > 0
    assert not one & two


def test_text_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """The sentence says what is needed and that a guess is not taken; nothing is written."""
    with pytest.raises(TraceError, match=r"holds text \(line 1\).*give --model"):
        anonymise(open_trace(json_lines(tmp_path / "in", CHATS)), tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


def test_lengths_alone_need_no_tokenizer(tmp_path: Path) -> None:
    """A trace without text or blocks stays as it is, but for names and the words of its report."""
    rows = [{"session_id": "Zoe", "input_length": 5, "output_length": 2}, {"input_length": -1}, {"input_length": 7}]
    trace = open_trace(json_lines(tmp_path / "in", rows), skip_bad=1)
    assert anonymise(trace, tmp_path / "out", None) == TraceTotals(2, 2, 12, None)
    assert len(trace.report.skipped) == 1
    head, *_ = (json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines())
    assert head["source"] == {"skipped": [], "remarks": []}
