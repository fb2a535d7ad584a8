"""Stack distances, against a count by hand and a cache that is played request by request."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.analysis.distances import NEVER, larger_before, last_touches, reuse
from tests.support.analysis import BLOCK_TOKENS, curve_of, load_of, lru_hit_blocks

# Prompts that go down a tree, as block ids of real traces do: each id is its parent's with one digit more.
PATHS = st.lists(st.lists(st.integers(1, 3), max_size=5), min_size=1, max_size=12)


def tree_ids(paths: list[list[int]]) -> list[list[int]]:
    """Turn paths into block ids, one for each prefix."""
    return [[int("".join(map(str, path[: i + 1]))) for i in range(len(path))] for path in paths]


@given(PATHS, st.integers(0, 20))
def test_one_pass_gives_what_a_cache_of_any_size_would_hit(paths: list[list[int]], capacity: int) -> None:
    """The curve at every size equals an LRU cache of that size that is played request by request."""
    requests = tree_ids(paths)
    load = load_of([*requests, [9]])  # one more prompt, so that there is always one
    curve = curve_of(load.stream)
    hits = curve.at(capacity * BLOCK_TOKENS) * curve.prompt_tokens
    assert round(hits) == lru_hit_blocks(requests, capacity) * BLOCK_TOKENS


@given(st.permutations(range(40)) | st.integers(0, 40).flatmap(lambda n: st.permutations(range(n))))
def test_larger_before_counts_as_a_loop_does(ranks: list[int]) -> None:
    """For each element, the larger ones before it."""
    counted = larger_before(np.array(ranks, np.int32))
    assert counted.tolist() == [sum(other > rank for other in ranks[:place]) for place, rank in enumerate(ranks)]


def test_last_touches_names_the_place_before() -> None:
    """-1 for a first use, else where the key stood last."""
    assert last_touches(np.array([5, 6, 5, 5, 6], np.uint64)).tolist() == [
        -1,
        -1,
        0,
        2,
        1,
    ]


def test_distances_of_a_request_grow_from_head_to_tail() -> None:
    """After [1 2 3] and [8 9], the blocks 1, 2 and 3 lie 2, 3 and 4 blocks deep; 4 is new."""
    found = reuse(load_of([[1, 2, 3], [8, 9], [1, 2, 3, 4]]).stream)
    assert found.distance[5:].tolist() == [2, 3, 4, NEVER]
    assert found.previous.tolist() == [-1] * 5 + [0, 0, 0, -1]


@pytest.mark.parametrize("requests", [[[1]], [[1], []], [[]]])
def test_streams_of_next_to_nothing(requests: list[list[int]]) -> None:
    """One block, or none, has no reuse and no error."""
    found = reuse(load_of(requests).stream)
    assert set(found.distance.tolist()) <= {NEVER}
