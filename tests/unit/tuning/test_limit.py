"""The search for the highest rate that keeps a service level, on engines whose capacity is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.limit import CONFIRM_SEED_OFFSET, Bisection, Bracket, Probe, rounded

HOW = Bisection(start_per_s=1.0, least_per_s=0.01, most_per_s=100.0, precision=0.1, seed=1)


def probe_all(meets: Callable[[float, int], bool], how: Bisection = HOW) -> list[Probe]:
    """Probe until the answer is known."""
    probes: list[Probe] = []
    while (following := how.next_probe(probes)) is not None:
        rate, seed = following
        probes.append(Probe(rate, seed, meets(rate, seed)))
        assert len(probes) < 60, "the search does not end"
    return probes


@given(st.floats(0.02, 90))
def test_a_capacity_is_found_to_the_precision_asked_for(capacity: float) -> None:
    """The limit is kept, the next rate is missed, and the gap between the two is narrow."""
    probes = probe_all(lambda rate, _: rate <= capacity)
    known = Bracket.of(probes)
    assert known.meets_per_s is not None
    assert known.misses_per_s is not None
    assert known.meets_per_s <= capacity < known.misses_per_s
    assert known.misses_per_s <= known.meets_per_s * 1.1 * 1.01, "a rate is rounded to three digits"
    assert HOW.confirmed(probes)


@given(st.floats(0.02, 90))
def test_few_probes_are_needed(capacity: float) -> None:
    """Doubling and halving take a number of probes that grows with the logarithm of the distance."""
    assert len(probe_all(lambda rate, _: rate <= capacity)) <= 14


def test_a_rate_that_fails_with_other_sessions_is_no_limit() -> None:
    """A limit kept by luck is given up for a lower one that is kept twice."""
    probes = probe_all(lambda rate, seed: rate <= (8.0 if seed == 1 else 5.0))
    known = Bracket.of(probes)
    assert known.meets_per_s is not None
    assert known.meets_per_s <= 5.0
    assert any(p.seed == 1 + CONFIRM_SEED_OFFSET and p.rate_per_s == known.meets_per_s for p in probes)


def test_an_engine_that_keeps_every_rate_is_probed_up_to_the_most() -> None:
    """The last rate is the highest allowed one, and no rate above it is sent."""
    probes = probe_all(lambda *_: True)
    assert max(p.rate_per_s for p in probes) == 100.0
    assert Bracket.of(probes) == Bracket(100.0, None)


def test_an_engine_that_keeps_no_rate_ends_the_search_at_the_least() -> None:
    """No rate below the lowest allowed one is probed."""
    probes = probe_all(lambda *_: False)
    assert Bracket.of(probes).meets_per_s is None
    assert min(p.rate_per_s for p in probes) >= 0.01


@given(st.floats(0.02, 90), st.integers(0, 13))
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(capacity: float, stopped_after: int) -> None:
    """What comes next follows from the probes alone."""
    whole = probe_all(lambda rate, _: rate <= capacity)
    part = whole[:stopped_after]
    following = HOW.next_probe(part)
    if stopped_after < len(whole):
        assert following == (whole[stopped_after].rate_per_s, whole[stopped_after].seed)
    else:
        assert following is None


def test_a_rate_kept_above_a_missed_one_does_not_count() -> None:
    """The lowest missed rate bounds the limit."""
    assert Bracket.of([Probe(4, 1, True), Probe(2, 1, False), Probe(1, 1, True)]) == Bracket(1, 2)


@pytest.mark.parametrize(("rate", "text"), [(1.23456, "1.23"), (123.456, "123.0"), (0.0123456, "0.0123")])
def test_rates_have_three_digits(rate: float, text: str) -> None:
    """A rate looks the same in every file."""
    assert str(rounded(rate)) == text
