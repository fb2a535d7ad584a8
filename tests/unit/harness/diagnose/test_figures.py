"""What a while of watching shows, in figures."""

from __future__ import annotations

from harness.diagnose.figures import Figures
from tests.support.watched import delta, gauges, moments, seen


def test_the_figures_of_a_minute() -> None:
    """Tiers as shares of the prompt tokens, the queue over time, the fullest moment of both pools."""
    looks = moments([gauges(queued=1, usage=0.5), gauges(queued=4, usage=0.9, host_fill=0.7)])
    figures = Figures.of(seen(delta=delta(load_back_count=12), moments=looks))
    assert figures.prompt_share_by_tier == {"device": 0.5, "host": 0.1}
    assert (figures.queued_mean, figures.queued_most) == (2.5, 4)
    assert (figures.device_pool_fullest, figures.host_pool_fullest) == (0.9, 0.8)
    assert dict(figures.rows()) == {
        "prompt tokens from a cache": "device 50%, host 10%",
        "reloaded": "40,000 tokens in 12 reloads",
        "evicted": "30,000 tokens, 0.10 s in which the scheduler waited",
        "queue": "2.5 requests on average, 4 at most",
        "fullest": "KV pool 90%, host pool 80%",
        "least host memory available": "40.0 GiB",
    }


def test_copies_are_timed_only_where_the_engine_times_them() -> None:
    """0.5.15 stops its timer before a copy begins; 0.5.23 tells seconds and bytes."""
    timed = {"load_back_seconds": 1.5, "load_back_bytes": 2**31, "load_back_count": 3}
    old = Figures.of(seen(delta=delta(**timed)))
    new = Figures.of(seen(delta=delta(**timed, load_back_seconds_is_bookkeeping=False)))
    assert (old.reload_s, new.reload_s) == (None, 1.5)
    assert dict(new.rows())["reloaded"] == "40,000 tokens in 3 reloads, 2.00 GiB, 1.50 s of copies"


def test_what_is_not_told_is_left_out() -> None:
    """An engine without HiCache on another machine, before its first gauge: nothing is taken for zero."""
    silent = dict.fromkeys(
        ("device_cached_tokens", "host_cached_tokens", "load_back_tokens", "evicted_tokens", "prompt_tokens")
    )
    figures = Figures.of(seen(delta=delta(**silent), moments=(), host_available_least_bytes=None))
    assert list(figures.rows()) == []
