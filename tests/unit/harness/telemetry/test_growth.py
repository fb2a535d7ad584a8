"""What memory at twice the concurrency is guessed from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.telemetry.growth import at_double, growth_at_double
from harness.telemetry.sample import Sample, frame

S = 10**9


def load(points: Sequence[tuple[float | None, int | None]]) -> list[Sample]:
    """Make the samples of a load: each second a scrape of the running requests, then a reading of memory."""
    samples = []
    for second, (running, used) in enumerate(points):
        if running is not None:
            samples.append(Sample(second * S, running_requests=running))
        if used is not None:
            samples.append(Sample(second * S + 1, device_used_bytes=used))
    return samples


def growth(points: Sequence[tuple[float | None, int | None]]) -> int | None:
    """Return by how much device memory would grow."""
    return growth_at_double(frame(load(points)), "device_used_bytes")


RAMP = [(0, 1000), (5, 1050), (10, 1100), (15, 1150), (20, 1200)]


def test_each_running_request_takes_as_much_again() -> None:
    """10 bytes a request in the ramp are 200 more at 40 requests; the headroom goes down by them."""
    assert growth(RAMP) == 200
    table = frame(load(RAMP))
    assert at_double(table, "device_used_bytes", 300) == 100
    assert at_double(table, "device_used_bytes", 150) == -50, "it would not fit, and by how much"
    assert at_double(table, "device_used_bytes", None) is None


def test_memory_that_stays_when_requests_end_counts_once() -> None:
    """Allocators keep what they took, so only new highs of the running requests say what a request takes."""
    assert growth([*RAMP, (3, 1200), (1, 1200), (20, 1200), (7, 1200)]) == 200


def test_memory_that_does_not_grow_takes_nothing() -> None:
    """Static pools stay as they are; memory that falls is no gain either."""
    assert growth([(n, 1000) for n in (1, 5, 9, 20)]) == 0
    assert growth([(n, 1000 - n) for n in (1, 5, 9, 20)]) == 0


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(None, 1000), (None, 1200)],
        [(5, None), (20, None)],
        [(5, 1000), (10, 1100), (20, 1200)],
        [(n, 1000 + n) for n in (16, 17, 18, 19, 20)],
        [(0, 1000 + n) for n in range(9)],
    ],
    ids=["nothing", "no scrape", "no memory", "few levels", "always alike", "idle"],
)
def test_without_a_ramp_nothing_is_guessed(points: list[tuple[float | None, int | None]]) -> None:
    """A load that shows too few levels of concurrency, or nearly one, says nothing of twice as many."""
    assert growth(points) is None


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2**40)), max_size=30))
def test_a_guess_is_never_a_gain(points: list[tuple[float | None, int | None]]) -> None:
    """Whatever was seen, twice the concurrency never leaves more than was left."""
    found = growth(points)
    assert found is None or found >= 0
