"""The whole analysis of a load that is small enough to count by hand."""

import json
from dataclasses import replace

import pytest

from scenarios.analysis import Analysis, Answer, HostPool, Machine, analyse
from tests.support.analysis import load_of

# Five users take turns, one request every second, and each comes back with the same two blocks.
ROUNDS = [[user * 10 + 1, user * 10 + 2] for _ in range(30) for user in range(5)]
POOLS = (HostPool("--hicache-size 1", 80), HostPool("--hicache-size 2", 100))


MACHINE = Machine(
    device_tokens=50,
    host_pools=POOLS,
    kv_bytes_per_token=1_000_000,
    prefill_tokens_per_s=10.0,
)
"""A user's blocks need 100 tokens to be found again."""


def analysed(machine: Machine = MACHINE) -> Analysis:
    """Analyse the load of the rounds."""
    return analyse(load_of(ROUNDS), machine)


def test_a_host_pool_that_holds_all_users_helps() -> None:
    """Of 3,000 prompt tokens, 2,900 come from the host: 290 s of prefill at 10 tokens a second."""
    analysis = analysed()
    assert (analysis.verdict.answer, analysis.verdict.pool) == (
        Answer.HELPS,
        "--hicache-size 2",
    )
    assert analysis.cache is not None
    off, small, large = analysis.cache.marks
    assert (off.hit_rate, small.hit_rate, large.hit_rate) == pytest.approx((0, 0, 29 / 30))
    assert (large.saved_tokens, large.saved_prefill_s) == (2900, 290)
    assert large.reload_s == pytest.approx(0.145)
    assert large.host_gb == pytest.approx(0.1)


def test_the_reload_rate_is_bytes_over_time() -> None:
    """2,900 tokens of 1 MB in 149 s; in the busiest 60th all 20 tokens a second are reloaded."""
    cache = analysed().cache
    assert cache is not None
    mark = cache.marks[-1]
    assert mark.reload_gb_per_s == pytest.approx(2.9 / 149)
    assert mark.peak_reload_gb_per_s == pytest.approx(0.02, rel=0.1)


def test_what_the_device_holds_is_not_reloaded() -> None:
    """Of three blocks a request, the one that all share is on the device: 2,900 tokens are reloaded and 1,490 not."""
    roomy = replace(MACHINE, host_pools=(HostPool("--hicache-size 3", 110),))
    cache = analyse(load_of([[7, *blocks] for blocks in ROUNDS]), roomy).cache
    assert cache is not None
    mark = cache.marks[-1]
    assert (mark.device_hit_rate, mark.host_hit_rate) == pytest.approx((149 / 450, 290 / 450))
    assert mark.reload_gb_per_s == pytest.approx(2.9 / 149)


def test_a_slow_bus_turns_the_verdict() -> None:
    """At 0.03 GB/s the 20 MB a second of the reloads are most of it."""
    assert analysed(replace(MACHINE, copy_gb_per_s=0.03)).verdict.answer is Answer.DEPENDS
    assert analysed(replace(MACHINE, copy_gb_per_s=0.005)).verdict.answer is Answer.DOES_NOT_HELP


def test_write_back_holds_the_sum_of_both() -> None:
    """50 on the device and 80 on the host hold the 100 that are needed."""
    assert analysed(replace(MACHINE, inclusive=False)).verdict.pool == "--hicache-size 1"


def test_the_record_is_json_with_a_version() -> None:
    """For programs; it names what it was counted on."""
    record = json.loads(analysed().model_dump_json())
    assert record["schema_version"] == 1
    assert record["sentence"].startswith("HiCache is expected to help")
    assert record["cache"]["sharing"]["new"] == pytest.approx(1 / 30)
    assert record["cache"]["sample_rate"] == 1
    assert record["arrivals"]["requests"] == 150


def test_a_sample_is_named() -> None:
    """Sampled figures say so."""
    analysis = analyse(load_of([[n] for n in range(500)] * 2, max_blocks=300), Machine())
    assert analysis.cache is not None
    assert analysis.cache.sample_rate == 0.25
    assert any("a sample of 1 in 4 blocks" in note for note in analysis.notes)
    assert analysis.cache.curve.hit_rates[-1] == pytest.approx(0.5, abs=0.1)


def test_sessions_that_are_not_told_apart_have_no_shares_of_their_own() -> None:
    """None, not zeros, while the sum is known."""
    cache = analyse(replace(load_of(ROUNDS), sessions_known=False), Machine()).cache
    assert cache is not None
    assert (cache.sharing.own_session, cache.sharing.other_sessions) == (None, None)
    assert cache.sharing.new == pytest.approx(1 / 30)
