"""What is said of three rounds of the same prompts."""

from __future__ import annotations

import pytest

from harness.verify.judgement import Answer, Judgement, judge
from harness.verify.timing import Timing

TOKENS = 2000


def timings(
    seconds: float, *, device: int | None = 0, host: int | None = 0, count: int = 8, tokens: int = TOKENS
) -> list[Timing]:
    """Make a round of prompts whose times differ by a few percent."""
    return [Timing(seconds * (1 + i / 100), tokens, device, host, 0) for i in range(count)]


def judged(evicted: list[Timing], *, hicache: bool = True) -> Judgement:
    """Judge a round after the eviction; cold prompts take 1 s and device hits 0.1 s."""
    return judge(timings(1.0), timings(0.1, device=1999), evicted, hicache=hicache)


def test_host_hits_that_are_faster_pay() -> None:
    """The sentence has the three times and their ratio."""
    found = judged(timings(0.125, device=0, host=1999))
    assert found.answer is Answer.PAYS
    assert "2,000 tokens take 1035 ms to compute, 104 ms from the device and 129 ms from the host" in found.sentence
    assert "8.0 times faster" in found.sentence


def test_host_hits_that_are_as_slow_as_computing_do_not_pay() -> None:
    """A tier that works and wins nothing is said to win nothing."""
    found = judged(timings(1.0, host=1999))
    assert found.answer is Answer.DOES_NOT_PAY
    assert found.host_share == 1.0


def test_what_is_computed_again_shows_that_hicache_is_off() -> None:
    """Without HiCache nothing comes back."""
    found = judged(timings(1.0), hicache=False)
    assert (found.answer, found.host_s) == (Answer.OFF, None)


def test_what_is_computed_again_with_hicache_on_is_told_apart() -> None:
    """The likely reasons are named."""
    found = judged(timings(1.0))
    assert found.answer is Answer.NOT_USED
    assert "host pool may be too small" in found.sentence


def test_prompts_that_stayed_on_the_device_prove_nothing() -> None:
    """The user learns which limit to raise."""
    found = judged(timings(0.1, device=1999))
    assert found.answer is Answer.NOT_EVICTED
    assert "--fill-tokens" in found.sentence


def test_an_engine_that_does_not_tell_tiers_is_not_said_to_pay() -> None:
    """Without a word on where the tokens came from, faster proves nothing."""
    assert judged(timings(0.1, device=None, host=None)).answer is Answer.NOT_USED


def test_a_few_host_hits_among_recomputed_prompts_are_not_the_rule() -> None:
    """Most prompts must come from the host for a verdict on it."""
    found = judged([*timings(1.0, count=6), *timings(0.1, host=1999, count=2)])
    assert found.answer is Answer.NOT_USED
    assert found.host_share == 0.25


def test_shorter_prompts_say_from_which_length_on_it_pays() -> None:
    """They have no part in the answer, which is that of the longest."""
    lengths = (250, 500, 1000, TOKENS)
    cold = [timing for tokens in lengths for timing in timings(0.0005 * tokens, tokens=tokens)]
    again = [timing for tokens in lengths for timing in timings(0.1, device=tokens, tokens=tokens)]
    evicted = [timing for tokens in lengths for timing in timings(0.3, host=tokens, tokens=tokens)]
    found = judge(cold, again, evicted, hicache=True)
    assert (found.answer, found.host_share) == (Answer.PAYS, 1.0)
    assert found.cold_s == pytest.approx(1.035)
    assert found.break_even is not None
    assert (found.break_even.shortest_tokens, found.break_even.longest_tokens) == (250, TOKENS)
    assert found.break_even.tokens is not None
    assert 500 < found.break_even.tokens < 700
    assert "times faster than computing them again. Reloading is faster from about" in found.sentence


def test_lengths_that_did_not_come_back_are_not_compared() -> None:
    """A prompt that was computed again says nothing of reloads."""
    cold = [timing for tokens in (500, 1000, TOKENS) for timing in timings(0.5, tokens=tokens)]
    evicted = [timing for tokens in (500, 1000, TOKENS) for timing in timings(0.1, host=tokens // 1999, tokens=tokens)]
    found = judge(cold, cold, evicted, hicache=True)
    assert found.break_even is None
