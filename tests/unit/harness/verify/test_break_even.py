"""From which length on a reload is faster, by prompts that were timed twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.verify.break_even import BreakEven, break_even
from harness.verify.timing import Timing

LENGTHS = (250, 500, 1000, 2000)
COUNT = 8


def timings(
    fixed_s: float, s_per_token: float, noise_s: float = 0.0, lengths: tuple[int, ...] = LENGTHS
) -> list[Timing]:
    """Time prompts of these lengths, whose times follow a line but for noise."""
    rng = np.random.default_rng(3)
    return [
        Timing(fixed_s + s_per_token * tokens + float(rng.normal(0, noise_s)), tokens, 0, tokens, 0)
        for tokens in lengths
        for _ in range(COUNT)
    ]


def found(reload_fixed_s: float, reload_s_per_token: float, noise_s: float = 0.0) -> BreakEven:
    """Compare reloads of this cost with computing 1 ms a token after 10 ms."""
    cold, host = timings(0.01, 1e-3, noise_s), timings(0.01 + reload_fixed_s, reload_s_per_token, 2 * noise_s)
    compared = break_even(cold, host)
    assert compared is not None
    return compared


@settings(max_examples=20)
@given(fixed_s=st.floats(0.26, 1.7), s_per_token=st.floats(0, 1e-4))
def test_it_is_where_both_take_as_long(fixed_s: float, s_per_token: float) -> None:
    """What a reload costs whatever its length, over what each token saves."""
    compared = found(fixed_s, s_per_token)
    assert compared.tokens == pytest.approx(fixed_s / (1e-3 - s_per_token), rel=1e-6)
    assert compared.saved_s_per_token == pytest.approx(1e-3 - s_per_token)


def test_its_interval_has_the_true_length() -> None:
    """Noise makes it wide; the sentence has both ends."""
    compared = found(0.6, 1e-4, noise_s=0.03)
    assert compared.low_tokens is not None
    assert compared.high_tokens is not None
    assert compared.low_tokens < 0.6 / 9e-4 < compared.high_tokens
    assert compared.low_tokens < compared.high_tokens - 10
    assert compared.sentence == (
        f"Reloading is faster from about {compared.tokens:,.0f} tokens on (95 %: {compared.low_tokens:,.0f} to "
        f"{compared.high_tokens:,.0f})."
    )


def test_nothing_is_said_of_lengths_that_were_not_tried() -> None:
    """Below the shortest and above the longest one a line is no measurement."""
    assert found(0.05, 1e-4).sentence == "It holds for every length that was tried, from 250 tokens on."
    assert found(2.5, 1e-4).sentence == "No length up to 2,000 tokens is reloaded faster than it is computed."


def test_a_token_that_saves_nothing_has_no_such_length() -> None:
    """Neither when a reload is as slow as computing, nor when it is slower."""
    for s_per_token in (1e-3, 1.5e-3):
        compared = found(0.0, s_per_token, noise_s=0.01)
        assert (compared.tokens, compared.low_tokens, compared.high_tokens) == (None, None, None)
        assert compared.sentence.startswith("No length from which reloading is faster shows")


def test_two_lengths_are_too_few() -> None:
    """A line through two points always fits."""
    two = (1000, 2000)
    assert break_even(timings(0.01, 1e-3, lengths=two), timings(0.1, 1e-4, lengths=two)) is None
    assert break_even([], []) is None
