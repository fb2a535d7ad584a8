"""Will HiCache help here? Rules on what was counted, the first that applies decides; each says why in figures."""

from __future__ import annotations

from scenarios.analysis.machine import Machine
from scenarios.analysis.prior import CachePrior
from scenarios.analysis.record import Answer, CacheUse, Mark, Verdict

NO_SHARING = 0.05
"""An endless cache that saves less of the prompts is no reason for a second tier."""
NEGLIGIBLE_WORK = 0.03
"""A saving below this share of the prefill work does not show in a measurement."""
SMALL_WORK = 0.10
"""A saving below this may be eaten up by the copies and by what the analysis leaves out."""
AS_GOOD = 0.02
"""Of pools whose savings differ by less, the smallest is named."""
BUSY_BUS = 0.5
"""A bus that is needed for a larger share of the busiest time makes requests wait for each other's copies."""


def decide(cache: CacheUse, machine: Machine, *, others_known: bool) -> Verdict:
    """Draw the verdict from what was counted.

    `others_known` is false when block ids of different sessions cannot be compared.
    """
    prior, endless = cache.curve, cache.curve.hit_rates[-1]
    if endless < NO_SHARING and not others_known:
        return Verdict(
            Answer.UNKNOWN,
            f"sessions repeat {endless:.1%} of their prompt tokens, and what they have in common does not show in this "
            "trace",
        )
    if endless < NO_SHARING:
        return Verdict(
            Answer.DOES_NOT_HELP,
            f"prompts share too little; even an endless cache would save only {endless:.1%} of their tokens",
        )
    if not cache.marks:
        return _without_device(prior, machine, endless)
    off, *pools = cache.marks
    possible = (endless - off.device_hit_rate) / (1 - off.device_hit_rate)
    if possible < NEGLIGIBLE_WORK:
        return Verdict(
            Answer.DOES_NOT_HELP,
            f"the device pool of {off.together_tokens:,} tokens holds what is used again (hit rate "
            f"{off.device_hit_rate:.1%} of at most {endless:.1%})",
        )
    best_work = max((pool.saved_work for pool in pools), default=0.0)
    if best_work < NEGLIGIBLE_WORK:
        knee = cache.knee_tokens
        return Verdict(
            Answer.DEPENDS,
            f"no host pool that was looked at is large enough; about {_size(knee, machine)} would raise the hit rate "
            f"from {off.device_hit_rate:.0%} to {prior.at(knee):.0%}",
        )
    return _with_pool(next(pool for pool in pools if pool.saved_work >= best_work - AS_GOOD), off, machine)


def _without_device(prior: CachePrior, machine: Machine, endless: float) -> Verdict:
    """Name the size of device pool from which on a second tier is of no use."""
    enough = 1 - (1 - endless) / (1 - NEGLIGIBLE_WORK)
    size = next(size for size, rate in zip(prior.sizes_tokens, prior.hit_rates, strict=True) if rate >= enough)
    return Verdict(
        Answer.DEPENDS,
        f"an endless cache saves {endless:.1%} of the prompt tokens, and a GPU whose KV pool is smaller than "
        f"{_size(size, machine)} cannot hold that alone; name its pool (--device-kv-tokens, or --model with "
        "--gpu-memory-gib)",
    )


def _with_pool(pool: Mark, off: Mark, machine: Machine) -> Verdict:
    size = f" ({_gb(pool.host_gb)} GB a rank)" if pool.host_gb is not None else ""
    gain = (
        f"{pool.pool}{size} raises the hit rate from {off.device_hit_rate:.0%} to {pool.hit_rate:.0%} and saves "
        f"{pool.saved_work:.0%} of the prefill work"
    )
    copy_s, compute_s = pool.reload_s, pool.saved_prefill_s
    if copy_s is not None and compute_s is not None and copy_s >= compute_s:
        return Verdict(
            Answer.DOES_NOT_HELP,
            f"copying a token back takes {copy_s / compute_s:.1f} times as long as computing it "
            f"({machine.copy_gb_per_s:g} GB/s)",
        )
    peak = pool.peak_reload_gb_per_s
    if peak is not None and peak > BUSY_BUS * machine.copy_gb_per_s:
        return Verdict(
            Answer.DEPENDS,
            f"{gain}, but reloads need {peak:.1f} GB/s in the busiest time, {peak / machine.copy_gb_per_s:.0%} of what "
            "the bus is taken to copy; measure it",
            pool.pool,
        )
    if pool.saved_work < SMALL_WORK:
        return Verdict(Answer.DEPENDS, f"{gain}, which is little; measure it", pool.pool)
    return Verdict(Answer.HELPS, gain, pool.pool)


def _size(tokens: float, machine: Machine) -> str:
    gb = machine.gb(tokens)
    return f"{tokens:,.0f} tokens" + (f" ({_gb(gb)} GB a rank)" if gb is not None else "")


def _gb(gb: float) -> str:
    """Write a size, of tiny models too: 0 GB would be no pool."""
    return f"{gb:,.0f}" if gb >= 10 else f"{gb:.2g}"
