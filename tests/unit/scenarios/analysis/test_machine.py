"""The candidates for the host pool."""

import numpy as np
import pytest

from scenarios.analysis.curve import HitCurve
from scenarios.analysis.machine import HostPool, Machine

# A cliff at 3,000 tokens.
CURVE = HitCurve(100, np.array([0.0, 50.0, 3000.0]), np.array([0.0, 20.0, 80.0]), 4000)
MACHINE = Machine(device_tokens=1000, kv_bytes_per_token=1_000_000)


def names(machine: Machine) -> list[str]:
    """Return the flags of the pools that are looked at."""
    return [pool.name for pool in machine.pools_for(CURVE)]


def test_sizes_in_gb_are_decimal_and_of_one_rank() -> None:
    """--hicache-size 3 holds 3e9 bytes."""
    assert MACHINE.sized(3) == HostPool("--hicache-size 3", 3000)
    assert MACHINE.gb(1500) == 1.5
    assert Machine().gb(1500) is None
    with pytest.raises(ValueError, match="KV bytes"):
        Machine().sized(3)


def test_by_default_multiples_of_the_device_and_the_knee_are_looked_at() -> None:
    """The knee is at 3,000 tokens, 3 GB; without bytes it has no flag."""
    expected = [
        "--hicache-ratio 2",
        "--hicache-size 3",
        "--hicache-ratio 4",
        "--hicache-ratio 8",
    ]
    assert names(MACHINE) == expected
    assert names(Machine(device_tokens=1000)) == [name for name in expected if "size" not in name]
    assert names(Machine(kv_bytes_per_token=1_000_000)) == []


def test_an_exclusive_pool_needs_to_hold_only_what_the_device_does_not() -> None:
    """write_back: 2,000 of the 3,000 tokens."""
    assert "--hicache-size 2" in names(Machine(1000, kv_bytes_per_token=1_000_000, inclusive=False))


def test_pools_that_do_not_fit_the_host_give_way_to_one_that_does() -> None:
    """With 3.5 GB the ratios of 4 and 8 are out, and 3 GB is the most."""
    assert names(Machine(1000, kv_bytes_per_token=1_000_000, host_gb_limit=3.5)) == [
        "--hicache-ratio 2",
        "--hicache-size 3",
    ]
    assert names(Machine(1000, kv_bytes_per_token=1_000_000, host_gb_limit=100)) == names(MACHINE)


def test_named_pools_are_the_only_ones() -> None:
    """Smallest first."""
    pools = (HostPool("b", 20), HostPool("a", 10))
    assert names(Machine(1000, pools)) == ["a", "b"]
