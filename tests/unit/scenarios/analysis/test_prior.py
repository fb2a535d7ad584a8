"""What a search is told to expect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.analysis.curve import HitCurve
from scenarios.analysis.prior import POINTS, CachePrior

PRIOR = CachePrior("made", 400, (0.0, 100.0, 200.0, 300.0), (0.0, 0.2, 0.5, 0.8))


def test_an_inclusive_host_adds_only_what_exceeds_the_device() -> None:
    """Write-through: the host has a copy of what is on the device, so 100 + 200 tokens hold 200."""
    hits = PRIOR.expected(100, 200)
    assert (hits.device, hits.host, hits.total) == pytest.approx((0.2, 0.3, 0.5))
    assert PRIOR.expected(200, 150).host == 0


def test_an_exclusive_host_adds_all_of_it() -> None:
    """write_back at best: 100 + 200 tokens hold 300."""
    assert PRIOR.expected(100, 200, inclusive=False).host == pytest.approx(0.6)


def test_without_hicache_the_device_is_alone() -> None:
    """0 host tokens."""
    assert PRIOR.expected(250).total == 0.5
    assert PRIOR.at(-1) == 0


@given(st.lists(st.integers(1, 100), min_size=1, max_size=2000), st.integers(1, 300_000))
def test_a_thinned_curve_is_below_the_whole_one_and_near_it(gains: list[int], size: int) -> None:
    """Few points stand for many: the rate at any size is that of a size at most 4 % smaller."""
    hits = np.cumsum(gains).astype(np.float64)
    steps = len(gains)
    whole = HitCurve(
        int(hits[-1]),
        np.arange(0.0, 100.0 * steps + 1, 100.0),
        np.array([0.0, *hits]),
        steps * 100,
    )
    prior = CachePrior.of("made", whole)
    assert len(prior.sizes_tokens) <= POINTS + 2
    assert whole.at(size * 0.96 - 100) - 1e-9 <= prior.at(size) <= whole.at(size) + 1e-9
    assert prior.hit_rates[-1] == pytest.approx(1.0)
