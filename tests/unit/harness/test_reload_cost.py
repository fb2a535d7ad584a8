"""What reloads cost: known costs are found again in simulated requests, and nothing is made up without them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.load.record import RequestRecord, Status
from harness.reload_cost import ReloadCost, reload_cost
from harness.telemetry import CacheDelta
from scenarios.plan import Phase

S = 10**9
COMPUTE_S, RELOAD_S, FIXED_S, BASE_S = 20e-6, 4e-6, 0.03, 0.05
KV_BYTES = 57_344


def delta(**changes: Any) -> CacheDelta:
    """Make the counters of a load of 100 s."""
    unknown: dict[str, Any] = {field.name: None for field in fields(CacheDelta)}
    known = {"start_ns": 0, "end_ns": 100 * S, "load_back_seconds_is_bookkeeping": True, "absent": ()}
    return CacheDelta(**(unknown | known | changes))


def requests(
    sessions: int = 100, turns: int = 6, *, queueing_s: float = 0.01, host: bool = True, seed: int = 3
) -> pd.DataFrame:
    """Simulate requests: half of them reload, all of them wait in a queue now and then."""
    rng = np.random.default_rng(seed)
    found = []
    for session in range(sessions):
        for turn in range(turns):
            uncached, cached = int(rng.integers(50, 2000)), int(rng.integers(500, 6000))
            reloaded = cached if host and rng.random() < 0.5 else 0
            wait_s = rng.exponential(queueing_s) + (rng.random() < 0.03) * 2.0
            ttft_s = BASE_S + COMPUTE_S * uncached + RELOAD_S * reloaded + FIXED_S * (reloaded > 0) + wait_s
            at = round(ttft_s * S)
            found.append(
                RequestRecord(
                    f"s{session}",
                    turn,
                    Phase.COUNTED,
                    Status.OK,
                    0,
                    0,
                    at,
                    at,
                    at,
                    prompt_tokens=uncached + cached,
                    cached_tokens=cached,
                    device_cached_tokens=cached - reloaded,
                    host_cached_tokens=reloaded,
                    storage_cached_tokens=0,
                )
            )
    columns = [field.name for field in fields(RequestRecord)]
    return pd.DataFrame([[getattr(record, name) for name in columns] for record in found], columns=columns)


def cost(records: pd.DataFrame, **counters: Any) -> ReloadCost:
    """Add up the cost of these requests."""
    return reload_cost(records, delta(**counters), kv_bytes_per_token=KV_BYTES)


def test_known_costs_lie_in_the_intervals() -> None:
    """Intervals of 95 % hold the truth in nearly all of 24 cases, whatever a queue does to single requests."""
    held = 0
    for seed in range(8):
        found = cost(requests(seed=seed))
        for estimate, truth in (
            (found.compute_s_per_token, COMPUTE_S),
            (found.reload_s_per_token, RELOAD_S),
            (found.reload_fixed_s, FIXED_S),
        ):
            assert estimate is not None
            assert estimate.low < estimate.value < estimate.high
            held += estimate.low <= truth <= estimate.high
    assert held >= 20


def test_the_break_even_length_follows() -> None:
    """Above so many tokens reloading is faster than computing."""
    found = cost(requests())
    assert found.break_even_tokens == pytest.approx(FIXED_S / (COMPUTE_S - RELOAD_S), rel=0.25)


def test_a_host_hit_adds_what_its_reload_takes() -> None:
    """The added TTFT grows from band to band by the cost of its tokens."""
    bands = cost(requests(sessions=400)).added_ttft
    assert [band.from_tokens for band in bands] == [512, 1024, 2048, 4096]
    assert bands[0].p50_s == pytest.approx(FIXED_S + RELOAD_S * 768, abs=0.004)
    assert bands[-1].p50_s == pytest.approx(FIXED_S + RELOAD_S * 5048, abs=0.004)


def test_a_load_without_reloads_tells_no_cost() -> None:
    """Nothing is fitted where there is nothing to compare."""
    found = cost(requests(host=False))
    assert (found.compute_s_per_token, found.break_even_tokens, found.added_ttft) == (None, None, ())


def test_a_reload_as_slow_as_computing_has_no_break_even() -> None:
    """No length is named above which the slower one would win."""
    records = requests()
    slow = (20 * COMPUTE_S * S * records["host_cached_tokens"]).astype(int)
    records["first_token_ns"] = records["first_token_ns"] + slow
    assert cost(records).break_even_tokens is None


def test_the_bookkeeping_timer_of_0_5_15_is_no_transfer_time() -> None:
    """Bytes over its seconds would be a bandwidth that nothing has."""
    found = cost(requests(), load_back_tokens=1000, load_back_seconds=0.001, load_back_count=3)
    assert (found.transfer_s, found.bytes_per_s) == (None, None)
    assert found.bytes == 1000 * KV_BYTES
    assert found.mean_bytes_per_s == pytest.approx(1000 * KV_BYTES / 100)


def test_0_5_23_tells_bytes_and_transfer_time() -> None:
    """Its counters are taken at their word."""
    found = cost(
        requests(),
        load_back_seconds_is_bookkeeping=False,
        load_back_bytes=10**9,
        load_back_seconds=0.5,
        backup_tokens=3000,
        host_cached_tokens=1000,
    )
    assert (found.bytes, found.bytes_per_s, found.write_amplification) == (10**9, 2e9, 3.0)


def test_requests_that_were_cut_or_not_counted_do_not_enter() -> None:
    """Only answered requests of counted sessions are compared."""
    records = requests()
    noise = records.assign(phase=Phase.WARMUP, first_token_ns=99 * S)
    cut = records.assign(status=Status.CUT, first_token_ns=99 * S)
    both = pd.concat([records, noise, cut], ignore_index=True)
    assert cost(both).compute_s_per_token == cost(records).compute_s_per_token


def test_several_loads_of_one_setting_count_together() -> None:
    """Counts add up, rates are over all their time, and a load that does not tell makes the sum unknown."""
    records = requests()
    first = delta(
        load_back_tokens=1000, load_back_count=3, eviction_seconds=2.0, backup_tokens=10, host_cached_tokens=5
    )
    second = delta(load_back_tokens=500, load_back_count=2, eviction_seconds=4.0, backup_tokens=2, host_cached_tokens=1)
    found = reload_cost(records, first, second, kv_bytes_per_token=KV_BYTES, pcie_ceiling_bytes_per_s=63e9)
    assert (found.reloads, found.tokens, found.bytes) == (5, 1500, 1500 * KV_BYTES)
    assert (found.eviction_s, found.eviction_share, found.write_amplification) == (6.0, 0.03, 2.0)
    assert found.mean_bytes_per_s == pytest.approx(1500 * KV_BYTES / 200)
    assert found.pcie_ceiling_bytes_per_s == 63e9
    assert reload_cost(records, first, delta(), kv_bytes_per_token=KV_BYTES).tokens is None


def test_the_speed_that_clients_see_follows_from_a_token() -> None:
    """57,344 bytes in 4 us are 14.3 GB/s; the interval turns round with it, and no cost is no speed."""
    found = cost(requests())
    assert found.felt_bytes_per_s is not None
    assert found.felt_bytes_per_s.value == pytest.approx(KV_BYTES / RELOAD_S, rel=0.2)
    assert found.felt_bytes_per_s.low < found.felt_bytes_per_s.value < found.felt_bytes_per_s.high
    records = requests()
    free = (RELOAD_S * S * records["host_cached_tokens"]).astype(int)
    assert cost(records.assign(first_token_ns=records["first_token_ns"] - 2 * free)).felt_bytes_per_s is None


def test_the_break_even_length_has_an_interval() -> None:
    """It holds the length, and nearly always the truth."""
    held = 0
    for seed in range(8):
        found = cost(requests(seed=seed))
        assert found.break_even_tokens is not None
        assert found.break_even_low_tokens is not None
        assert found.break_even_high_tokens is not None
        assert found.break_even_low_tokens <= found.break_even_tokens <= found.break_even_high_tokens
        held += found.break_even_low_tokens <= FIXED_S / (COMPUTE_S - RELOAD_S) <= found.break_even_high_tokens
    assert held >= 6


def test_a_reload_that_saves_time_has_no_break_even() -> None:
    """Requests that reload and yet wait less are other requests; no length follows from comparing them."""
    records = requests()
    earlier = (4 * FIXED_S * S * (records["host_cached_tokens"] > 0)).astype(int)
    found = cost(records.assign(first_token_ns=records["first_token_ns"] - earlier))
    assert found.reload_fixed_s is not None
    assert found.reload_fixed_s.high < 0
    assert (found.break_even_tokens, found.break_even_low_tokens, found.break_even_high_tokens) == (None, None, None)
