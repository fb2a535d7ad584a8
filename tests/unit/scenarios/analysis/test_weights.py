"""Weights of blocks, sampled and not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.analysis.weights import token_weights
from tests.support.analysis import load_of

SHARED = [[1, *range(1000 * n, 1000 * n + n % 30)] for n in range(1, 300)]


def test_every_block_of_a_whole_stream_stands_for_itself() -> None:
    """Weights are the tokens of the prompts; other requests have none."""
    stream = load_of([[1, 2], [1]]).stream
    assert token_weights(stream).tokens.tolist() == [10, 10, 10]
    assert token_weights(stream, np.array([False, True])).tokens.tolist() == [0, 0, 10]


@given(st.sampled_from([0.5, 0.25, 0.125, 0.03]))
def test_a_sample_adds_up_to_all_prompts(rate: float) -> None:
    """At each depth, so in all, whether or not the block that all share is in the sample."""
    stream = load_of(SHARED).stream
    weights = token_weights(stream.thinned(rate))
    assert weights.tokens.sum() + weights.missed == pytest.approx(stream.prompt_tokens.sum())


def test_a_shared_block_counts_once_for_each_prompt() -> None:
    """In the sample, it weighs 10 tokens and not 10 / rate; out of it, its tokens are missed."""
    stream = load_of(SHARED).stream
    for rate in (0.5, 0.25, 0.125):
        sample = stream.thinned(rate)
        weights = token_weights(sample)
        heads = weights.tokens[sample.positions == 0].sum() + weights.missed
        assert heads == pytest.approx(10 * len(stream), abs=10 * 30)
