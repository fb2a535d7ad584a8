"""Hit rates of recorded traces against what was published of them, and of a real H200 against what it measured.

The synthetic Mooncake trace is whole, so its published table holds. Of the conversation trace there is the sample that
the facts describe, with figures of its own. The traces and their origin are in tests/data/traces.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from scenarios.analysis import Assumptions, CachePrior, Load, load_of_scenario, load_of_trace
from scenarios.analysis.curve import HitCurve
from scenarios.catalogue import load_scenario
from scenarios.readers import open_trace
from tests.support.analysis import curve_of

pytestmark = pytest.mark.contract

TRACES = Path(__file__).parents[1] / "data" / "traces"
SCENARIO = Path(__file__).parents[2] / "scripts" / "gpu" / "support-chat.yaml"
POINT = 0.01
PUBLISHED = 0.5 * POINT

SYNTHETIC_SHARES = {1: 3.9, 2: 7.9, 5: 16.0, 10: 26.7, 25: 45.2, 50: 60.0, 75: 64.2, 100: 65.1}
SYNTHETIC_MILLIONS = {0.25: 4.5, 0.5: 8.4, 1: 14.5, 2: 23.3, 4: 37.5, 8: 53.6, 16: 63.8, 32: 65.1}
CONVERSATION_SHARES = {1: 7.6, 5: 17.3, 10: 23.6, 25: 35.4, 50: 42.3, 100: 46.8}


def load_of_sample(name: str) -> Load:
    """Read a whole sample."""
    return load_of_trace(open_trace(TRACES / f"{name}.jsonl.xz"), assumed=Assumptions(), page_tokens=16)


@cache
def curve(name: str) -> HitCurve:
    """Return the exact curve of a sample."""
    return curve_of(load_of_sample(name).stream)


@pytest.mark.parametrize(("share", "published"), SYNTHETIC_SHARES.items())
def test_synthetic_by_share_of_the_unique_tokens(share: int, published: float) -> None:
    """The published table of the whole trace, within half a point."""
    found = curve("mooncake-synthetic")
    assert found.at(found.unique_tokens * share / 100) == pytest.approx(published * POINT, abs=PUBLISHED)


@pytest.mark.parametrize(("millions", "published"), SYNTHETIC_MILLIONS.items())
def test_synthetic_by_size(millions: float, published: float) -> None:
    """The published table of absolute sizes, within half a point."""
    assert curve("mooncake-synthetic").at(millions * 1e6) == pytest.approx(published * POINT, abs=PUBLISHED)


@pytest.mark.parametrize(("share", "published"), CONVERSATION_SHARES.items())
def test_conversation_sample_by_share_of_the_unique_tokens(share: int, published: float) -> None:
    """The figures of the sample itself, within half a point."""
    found = curve("mooncake-conversation")
    assert found.at(found.unique_tokens * share / 100) == pytest.approx(published * POINT, abs=PUBLISHED)


def test_unique_tokens_are_those_published() -> None:
    """22.5 million of the synthetic trace and 18.9 million of the conversation sample."""
    assert curve("mooncake-synthetic").unique_tokens == pytest.approx(22.5e6, abs=0.05e6)
    assert curve("mooncake-conversation").unique_tokens == pytest.approx(18.9e6, abs=0.05e6)


@pytest.mark.parametrize(("rate", "points"), [(0.5, 1.0), (0.25, 2.0), (0.0625, 3.0)])
@pytest.mark.parametrize("name", ["mooncake-synthetic", "mooncake-conversation"])
def test_a_sample_of_the_blocks_is_near_the_whole(name: str, rate: float, points: float) -> None:
    """With 60,000, 30,000 and 4,000 blocks, at every size."""
    sample = curve_of(load_of_sample(name).stream.thinned(rate))
    exact = curve(name)
    sizes = exact.sizes_tokens[-1] * np.logspace(-3, 0, 100)
    assert max(abs(sample.at(size) - exact.at(size)) for size in sizes) < points * POINT


class TestH200:
    """scripts/gpu/support-chat.yaml as it was played on a real H200 (docs/evidence/h200-2026-11-30).

    Hit rates are those of the counted requests in `requests/`: cached over prompt tokens. Requests took 3.5 s there
    without HiCache and with its default pool, 0.9 s with large pools.
    """

    DEVICE = 79_727

    @staticmethod
    @cache
    def prior(seed: int, service_s: float) -> CachePrior:
        """Return what is expected of the load of `seed`."""
        load = load_of_scenario(load_scenario(SCENARIO), seed, page_tokens=16, assumed=Assumptions(service_s=service_s))
        return CachePrior.of(load.source, curve_of(load.stream))

    @pytest.mark.parametrize(
        ("seed", "service_s", "host_tokens", "measured"),
        [
            (1, 3.5, 0, 27.6),
            (1, 3.7, 159_455, 30.4),
            (1, 3.7, 104_640, 26.3),
            (1, 0.9, 313_896, 78.5),
            (1, 0.8, 418_560, 78.0),
            (1001, 3.5, 0, 27.3),
            (1001, 3.7, 159_455, 31.4),
            (1001, 0.9, 313_896, 78.2),
            (1001, 0.9, 418_560, 78.2),
        ],
    )
    def test_expected_is_near_measured(self, seed: int, service_s: float, host_tokens: int, measured: float) -> None:
        """Within two points when the service time is that of the run."""
        expected = self.prior(seed, service_s).expected(self.DEVICE, host_tokens)
        assert expected.total == pytest.approx(measured * POINT, abs=2 * POINT)

    @pytest.mark.parametrize(
        ("seed", "host_tokens", "measured"),
        [(1, 0, 27.6), (1, 159_455, 30.4), (1, 313_896, 78.5), (1001, 159_455, 31.4), (1001, 418_560, 78.2)],
    )
    def test_the_default_service_time_does_too(self, seed: int, host_tokens: int, measured: float) -> None:
        """Within five points with what is assumed when nobody knows it."""
        expected = self.prior(seed, Assumptions().service_s).expected(self.DEVICE, host_tokens)
        assert expected.total == pytest.approx(measured * POINT, abs=5 * POINT)

    def test_a_write_through_host_pool_does_not_add_to_the_device(self) -> None:
        """The sum of both pools would have served over twice as much as was measured (30.4 %)."""
        assert self.prior(1, 3.7).expected(self.DEVICE, 159_455, inclusive=False).total > 0.6


def test_all_requests_of_the_h200_load_are_expected_as_measured() -> None:
    """Warm-up and fillers included: 30.8 % without HiCache, 38.1 % with its default, 77.0 % with 18 GB."""
    load = load_of_scenario(load_scenario(SCENARIO), 1, page_tokens=16, assumed=Assumptions(service_s=3.5))
    everything = replace(load.stream, counted=np.ones(len(load.stream), np.bool_))
    found = curve_of(everything)
    assert found.at(79_727) == pytest.approx(0.308, abs=2 * POINT)
    assert found.at(159_455) == pytest.approx(0.381, abs=2 * POINT)
    assert found.at(313_896) == pytest.approx(0.770, abs=2 * POINT)
