"""Streams: order in time, and samples that are fair and bounded."""

import numpy as np
import pytest

from scenarios.analysis.stream import StreamCollector, stream_of
from scenarios.errors import ScenarioError
from tests.support.analysis import BLOCK_TOKENS, curve_of, load_of

MANY = [[session * 1000 + i for i in range(8 + 4 * turn)] for turn in range(6) for session in range(1, 300)]


def test_requests_are_put_in_order_of_time_with_their_blocks() -> None:
    """Blocks follow their request; the first one is at 0."""
    keys = np.array([1, 2, 3, 4, 5, 6], np.uint64)
    stream = stream_of(10, [0, 0, 0], [0, 1, 2], [10, 20, 30], [1, 2, 3], [1, 2, 3], keys)
    timed = stream.timed(np.array([7.0, 5.0, 6.0]))
    assert timed.at_s.tolist() == [0.0, 1.0, 2.0]
    assert timed.session.tolist() == [1, 2, 0]
    assert timed.keys.tolist() == [2, 3, 4, 5, 6, 1]
    assert timed.positions.tolist() == [0, 1, 0, 1, 2, 0]


def test_the_last_block_counts_its_tokens_and_the_reply_none() -> None:
    """A prompt of 24 tokens in blocks of 10 has 10, 10 and 4; a fourth block is reply."""
    stream = stream_of(10, [0], [0], [24], [3], [4], np.arange(4, dtype=np.uint64))
    assert stream.lookup_tokens().tolist() == [10, 10, 4, 0]
    assert stream.covered_tokens.tolist() == [24]


def test_a_sparser_sample_is_a_part_of_a_denser_one() -> None:
    """So a sample can be thinned again while a trace is read."""
    stream = load_of(MANY).stream
    half, eighth = stream.thinned(0.5), stream.thinned(0.125)
    assert set(eighth.keys.tolist()) < set(half.keys.tolist()) < set(stream.keys.tolist())
    assert half.thinned(0.125).keys.tolist() == eighth.keys.tolist()
    assert len(half.keys) == pytest.approx(len(stream.keys) / 2, rel=0.1)
    assert len(half) == len(stream)


@pytest.mark.parametrize(("share", "rate"), [(0.67, 0.5), (0.33, 0.25)])
def test_too_many_blocks_are_sampled_while_they_come(share: float, rate: float) -> None:
    """The collector keeps to its bound, samples no more than that needs, and gives what thinning at the end gives."""
    whole = load_of(MANY).stream
    collector = StreamCollector(max_blocks=int(share * len(whole.keys)))
    for part in (load_of(MANY[:700]).stream, load_of(MANY[700:]).stream):
        collector.add(part)
    kept = collector.joined()
    assert kept.rate == rate
    assert len(kept.keys) <= share * len(whole.keys)
    assert kept.keys.tolist() == whole.thinned(rate).keys.tolist()
    assert kept.prompt_tokens.sum() == whole.prompt_tokens.sum()


def test_a_sample_estimates_the_curve() -> None:
    """A quarter of 32,000 blocks gives the hit rates of all of them within 2 points."""
    exact = load_of(MANY).stream
    sample = exact.thinned(0.25)
    whole, estimate = curve_of(exact), curve_of(sample)
    for blocks in (300, 2000, 3000, 5000, 10_000):
        assert estimate.at(blocks * BLOCK_TOKENS) == pytest.approx(whole.at(blocks * BLOCK_TOKENS), abs=0.02)
    assert estimate.unique_tokens == pytest.approx(whole.unique_tokens, rel=0.05)


def test_a_block_that_all_prompts_share_does_not_shift_a_sample() -> None:
    """In the sample or not, the shared first block counts once: the endless cache's hit rate stays that of all."""
    shared = [[1, *range(1000 * n, 1000 * n + 9)] for n in range(1, 400)]
    exact = load_of(shared).stream
    for rate in (0.5, 0.25, 0.125):
        sample = exact.thinned(rate)
        assert curve_of(sample).endless == pytest.approx(0.1, abs=0.03)


def test_nothing_to_analyse_is_said() -> None:
    """No request at all is an error with a sentence."""
    with pytest.raises(ScenarioError, match="there is no request in it"):
        StreamCollector().joined()
