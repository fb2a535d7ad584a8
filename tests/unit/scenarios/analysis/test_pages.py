"""Pages of conversations."""

from hypothesis import given
from hypothesis import strategies as st

from scenarios.analysis.pages import History, PagedRequest, Unknown, pages_stream

IDS = st.lists(st.integers(0, 2**40), max_size=40)


@given(st.lists(IDS, max_size=5), st.integers(1, 9))
def test_a_conversation_in_parts_has_the_pages_of_the_whole(parts: list[list[int]], page_tokens: int) -> None:
    """Pages depend on the tokens alone, not on how they came."""
    history = History(page_tokens)
    for part in parts:
        history = history.extended(part)
    whole = History(page_tokens).extended([token for part in parts for token in part])
    assert history.keys.tolist() == whole.keys.tolist()
    assert (history.tokens, history.total) == (whole.tokens, whole.total)
    assert len(whole.keys) == whole.tokens // page_tokens


def test_equal_beginnings_share_pages_up_to_the_first_other_token() -> None:
    """Tokens 0-19 are equal and the next is not, so with pages of 8 two pages are shared."""
    first = History(8).extended([*range(20), 1, 2, 3, 4])
    second = History(8).extended([*range(20), 9, 2, 3, 4])
    assert [a == b for a, b in zip(first.keys, second.keys, strict=True)] == [
        True,
        True,
        False,
    ]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    """A prompt of exactly two pages looks up one; the reply's pages are cached and not looked up."""
    prompt = History(8).extended(range(16))
    stream = pages_stream([PagedRequest(0.0, 0, prompt, prompt.extended(range(8)))], 8)
    assert stream.lookups.tolist() == [1]
    assert stream.lengths.tolist() == [3]
    assert stream.lookup_tokens().tolist() == [8, 0, 0]


def test_unknown_words_are_never_the_same_twice() -> None:
    """Replies that nobody knows share nothing."""
    unknown = Unknown()
    assert not set(unknown.ids(5)) & set(unknown.ids(5))
