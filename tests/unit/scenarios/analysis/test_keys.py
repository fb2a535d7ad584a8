"""Keys of blocks: equal exactly for equal prefixes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scenarios.analysis.keys import block_keys, mixed, prefix_sums, seed_of

PROMPTS = st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=8)


def keys_of(prompts: list[list[int]], seeds: list[int] | None = None) -> list[list[int]]:
    """Return the keys of each prompt's blocks."""
    ids = np.array([number for prompt in prompts for number in prompt], np.uint64)
    lengths = np.array([len(prompt) for prompt in prompts])
    keys = block_keys(ids, lengths, np.array(seeds or [0] * len(prompts), np.uint64))
    return [part.tolist() for part in np.split(keys, np.cumsum(lengths)[:-1])]


@given(PROMPTS)
def test_keys_are_equal_exactly_where_prefixes_are(prompts: list[list[int]]) -> None:
    """Two blocks have one key if and only if all ids up to them are equal."""
    seen: dict[int, tuple[int, ...]] = {}
    for prompt, keys in zip(prompts, keys_of(prompts), strict=True):
        for index, key in enumerate(keys):
            prefix = tuple(prompt[: index + 1])
            assert seen.setdefault(key, prefix) == prefix
    assert len(seen) == len({tuple(p[: i + 1]) for p in prompts for i in range(len(p))})


def test_seeds_keep_equal_ids_apart() -> None:
    """Sessions whose ids are numbered anew share no key."""
    first, second = keys_of([[1, 2], [1, 2]], [seed_of("a"), seed_of("b")])
    assert not set(first) & set(second)


def test_a_block_that_is_used_twice_in_a_prompt_has_two_keys() -> None:
    """KV depends on what stands before it, so the second use is other KV."""
    assert len(set(keys_of([[7, 7, 7]])[0])) == 3


def test_a_rolling_hash_goes_on_where_it_stopped() -> None:
    """Hashing in two parts gives what hashing at once gives."""
    ids = np.arange(20, dtype=np.uint64)
    whole = prefix_sums(ids)
    assert prefix_sums(ids[8:], first=8, start=int(whole[7])).tolist() == whole[8:].tolist()


def test_keys_are_the_same_in_every_process() -> None:
    """They choose the sample, so a rerun must count on the same blocks (first value of SplitMix64 with seed 0)."""
    assert int(mixed(np.zeros(1, np.uint64))[0]) == 0xE220A8397B1DCDAF
    assert seed_of("session") == 13089018033905596452
