"""Where prompt tokens were seen before, and how much KV is alive."""

import pytest

from scenarios.analysis import Assumptions, load_of_trace
from scenarios.analysis.distances import reuse
from scenarios.analysis.sharing import reuse_quantiles, sharing, working_set
from scenarios.analysis.weights import token_weights
from tests.support.analysis import request, trace_of

# Session a: two turns; session b: shares block 1 with it, and has a turn of its own.
REQUESTS = [
    request([1, 2], 0.0, "a", 0),
    request([1, 2, 3], 10.0, "a", 1),
    request([1, 8], 20.0, "b", 0),
    request([1, 8, 9], 40.0, "b", 1),
]
STREAM = load_of_trace(trace_of(REQUESTS), assumed=Assumptions(), page_tokens=1).stream
FOUND = reuse(STREAM)
WEIGHTS = token_weights(STREAM)


def test_own_history_and_what_sessions_share_are_told_apart() -> None:
    """Of 10 blocks, 4 were in the own session before, 1 in the other alone, 5 nowhere."""
    shares = sharing(STREAM, FOUND, WEIGHTS)
    assert (shares.own_session, shares.other_sessions, shares.new) == pytest.approx((0.4, 0.1, 0.5))


def test_the_working_set_by_window() -> None:
    """In four windows of 10 s: 2, 1, 1 and 1 new blocks; those used again are kept from use to use."""
    seen = working_set(STREAM, FOUND, windows=4)
    assert seen.until_s == (10, 20, 30, 40)
    assert seen.unique_tokens == (20, 30, 40, 50)
    assert seen.touched_tokens == (20, 30, 20, 30)
    assert seen.kept_tokens == (20, 10, 20, 0)
    assert seen.peak_kept_tokens == 20


def test_reuse_is_weighted_by_tokens() -> None:
    """The five reused blocks were used 10, 10, 10, 20 and 20 s before, with 0 to 2 blocks used since."""
    found = reuse_quantiles(STREAM, FOUND, WEIGHTS, (0.2, 0.6, 0.61, 1.0))
    assert found is not None
    assert found.time_s == (10, 10, 20, 20)
    assert found.distance_tokens == (0, 0, 10, 10)


def test_without_reuse_there_are_no_quantiles() -> None:
    """None, not zeros."""
    stream = load_of_trace(trace_of(REQUESTS[:1]), assumed=Assumptions(), page_tokens=1).stream
    assert reuse_quantiles(stream, reuse(stream), token_weights(stream)) is None
