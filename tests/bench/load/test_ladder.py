"""The arithmetic of the benchmark: what a rung is worth, and where a ladder ends."""

from __future__ import annotations

import pytest

from tests.bench.load.ladder import ERROR_LIMIT_MS, reach, sustains
from tests.bench.load.rung import Load, Rung, Seen, compared
from tests.bench.load.server import Report, Script, Truth

SECOND = 1_000_000_000


def rung(rate: float, limit: float) -> Rung:
    """Make the rung of a client that is right up to `limit` tokens a second."""
    load = Load(streams=2, tokens=10, tokens_per_s=rate, seconds=1)
    error_ms = 1.0 if rate <= limit else ERROR_LIMIT_MS
    return Rung("c", load, rate, 1, 0, error_ms, error_ms, error_ms, 0.0, 0.0, 0.0, 0)


@pytest.mark.parametrize("limit", [700.0, 900.0, 1000.0, 1300.0, 2400.0])
def test_a_ladder_ends_next_to_the_limit(limit: float) -> None:
    """From below or above, the best rung is under the limit, and a step that failed is less than 1.3 times above it."""
    found = reach("c", lambda rate: rung(rate, limit), 1000.0)
    assert found.best is not None
    best = found.best.load.tokens_per_s
    failed = [r.load.tokens_per_s for r in found.rungs if not sustains(r)]
    assert best <= limit < min(failed) < 1.3 * best


def test_a_client_that_cannot_run_is_told() -> None:
    """One client that fails does not end the benchmark."""

    def attempt(_rate: float) -> Rung:
        raise RuntimeError("no such client")

    assert reach("c", attempt, 1000.0).failure == "no such client"


def test_what_a_rung_counts() -> None:
    """Rate and error come from the requests after the first of each slot; a reply short of a token is not whole."""
    load = Load(streams=1, tokens=10, tokens_per_s=10.0, seconds=3)
    truths = [Truth(k, k * SECOND, k * SECOND + SECOND // 10, (k + 1) * SECOND, 10) for k in range(4)]
    seen = [Seen(t.key, t.received_ns - 1000, t.first_write_ns + 2_000_000, 10 if t.key < 3 else 9) for t in truths]
    found = compared("c", load, seen, Report(truths))
    assert load.requests == 4
    assert (found.counted, found.broken) == (2, 1)
    assert (found.error_p50_ms, found.error_max_ms) == (2.0, 2.0)
    assert found.request_p99_ms == pytest.approx(0.001)
    assert found.tokens_per_s == pytest.approx(10.0, rel=0.1)


def test_the_script_offers_the_load() -> None:
    """A request lasts as long as its share of the rate: first token and gaps together."""
    load = Load(streams=100, tokens=50, tokens_per_s=5000.0, seconds=1)
    first_s = sum(Script.first_token_s) / 2
    assert first_s + 49 * load.script.gap_s == pytest.approx(1.0)
