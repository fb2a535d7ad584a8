"""The rules: what was seen, what it most likely means, and what to do next.

A rule looks at counters and gauges alone. Its threshold is where the effect is large enough to be worth a change, not
where it can first be measured; each finding carries its figures, so that the reader can disagree.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from harness.diagnose.figures import Figures
from harness.diagnose.seen import Seen, thirds
from scenarios.strict import StrictModel

FEW_REQUESTS = 20
BUSY_EVICTION = 0.05
"""Share of the time in which evictions block the scheduler; on an H200 0.2 s and 29 s of a load of 110 s were seen."""
MUCH_REUSE = 0.3
LITTLE_REUSE = 0.1
TURNED_OVER = 0.5
"""So many device pools evicted a minute mean that the working set does not fit."""
HOST_FULL = 0.97
HOST_IDLE = 0.5
STORM_SHARE = 0.3
"""Share of all prompt tokens that came back from the host: the device keeps too little of what is in use."""
UNEVEN = 0.25
GROWN = 2.0


class Weight(enum.StrEnum):
    """How much a finding matters."""

    FAULT = "fault"
    """Costs users time or requests now."""
    ADVICE = "advice"
    """Something can be gained or saved."""
    HEALTHY = "healthy"
    """Looks bad and is not."""


class Finding(StrictModel):
    """One likely cause, its evidence, and the next step."""

    name: str
    weight: Weight
    cause: str
    evidence: str
    next_step: str


class Diagnosis(StrictModel):
    """What was watched, and what was found."""

    schema_version: int = 1
    base_url: str
    seconds: float
    requests: int | None
    hit_rate: float | None
    figures: Figures
    findings: tuple[Finding, ...]


Rule = Callable[[Seen], Finding | None]


def diagnose(seen: Seen) -> tuple[Finding, ...]:
    """Apply all rules; faults first. Too few requests make one finding that says so."""
    if not seen.delta.epoch_reset and (seen.delta.requests or 0) < FEW_REQUESTS:
        return (_too_quiet(seen),)
    found = [finding for rule in RULES if (finding := rule(seen)) is not None]
    order = list(Weight)
    return tuple(sorted(found, key=lambda finding: order.index(finding.weight)))


def _too_quiet(seen: Seen) -> Finding:
    return Finding(
        name="too quiet",
        weight=Weight.ADVICE,
        cause="too few requests ended to say anything",
        evidence=f"{seen.delta.requests or 0} requests in {seen.seconds:.0f} s",
        next_step="watch a busier time, or for longer (--minutes)",
    )


def restarted(seen: Seen) -> Finding | None:
    """Find an engine that came up again while it was watched."""
    if not seen.delta.epoch_reset:
        return None
    return Finding(
        name="restarted",
        weight=Weight.FAULT,
        cause="the engine restarted while it was watched: its caches are cold",
        evidence="its counters fell",
        next_step="look at the end of the engine's log; then watch again",
    )


def over_capacity(seen: Seen) -> Finding | None:
    """Find a queue that grows, or running requests that are put back for want of KV space."""
    queue, retracted = thirds(seen.series(lambda gauges: gauges.queued_requests)), seen.delta.retracted or 0
    grows = queue is not None and queue[1] > GROWN * max(queue[0], 1.0)
    if not grows and retracted * 20 < (seen.delta.requests or 0):
        return None
    figures = f"queue {queue[0]:.0f} -> {queue[1]:.0f} requests, " if queue else ""
    return Finding(
        name="over capacity",
        weight=Weight.FAULT,
        cause="more requests come than the engine serves",
        evidence=f"{figures}{retracted} of {seen.delta.requests} put back for want of KV space",
        next_step="find the rate it sustains (hicache-tune find-limit), then limit or spread the load",
    )


def eviction_stalls(seen: Seen) -> Finding | None:
    """Find evictions that block the scheduler."""
    blocked_s = seen.delta.eviction_seconds
    if blocked_s is None or blocked_s < BUSY_EVICTION * seen.seconds:
        return None
    policy, pages = seen.flags.write_policy, seen.flags.page_size
    copied = "write_back copies to the host inside each eviction" if policy == "write_back" else f"page size {pages}"
    return Finding(
        name="eviction stalls",
        weight=Weight.FAULT,
        cause="evictions block the scheduler, and every request behind it",
        evidence=f"{blocked_s:.1f} s of {seen.seconds:.0f} s in {seen.delta.eviction_count} evictions; {copied}",
        next_step="try write_through_selective or write_through with kernel/page_first (hicache-tune search)",
    )


def reload_storm(seen: Seen) -> Finding | None:
    """Find a device pool so small that what is in use goes back and forth."""
    host, prompt = seen.delta.host_cached_tokens, seen.delta.prompt_tokens
    if not seen.flags.hicache or not host or not prompt or host < STORM_SHARE * prompt:
        return None
    return Finding(
        name="reload storm",
        weight=Weight.ADVICE,
        cause="much of what is in use leaves the device and comes back: it works, and each time costs a copy",
        evidence=f"{host / prompt:.0%} of {prompt:,} prompt tokens came back from the host, "
        f"{(seen.delta.load_back_tokens or 0) / seen.seconds:,.0f} tokens/s",
        next_step="raise --mem-fraction-static as far as headroom allows, or lower the number of live sessions",
    )


def host_pool_too_small(seen: Seen) -> Finding | None:
    """Find a full host pool that loses what is needed next."""
    fill, host = max(seen.series(lambda gauges: gauges.host_fill), default=0.0), seen.delta.host_cached_tokens or 0
    if not seen.flags.hicache or fill < HOST_FULL or _pools_a_minute(seen) < TURNED_OVER:
        return None
    if host > MUCH_REUSE * (seen.delta.prompt_tokens or 1):
        return None
    return Finding(
        name="host pool too small",
        weight=Weight.FAULT,
        cause="the host pool is full and drops what is asked for next, so the copies cost and win nothing",
        evidence=f"host pool {fill:.0%} full, {_hit(seen)}, {_pools_a_minute(seen):.1f} device pools evicted a minute",
        next_step="raise --hicache-size towards the working set (hicache-tune analyze shows it), or switch HiCache off",
    )


def host_pool_too_large(seen: Seen) -> Finding | None:
    """Find a host pool of which much is never used."""
    fills = seen.series(lambda gauges: gauges.host_fill)
    if not seen.flags.hicache or not fills or max(fills) > HOST_IDLE or _pools_a_minute(seen) < TURNED_OVER:
        return None
    return Finding(
        name="host pool larger than it pays",
        weight=Weight.ADVICE,
        cause="the host pool is larger than what there is to keep",
        evidence=f"never more than {max(fills):.0%} full in {seen.seconds:.0f} s",
        next_step="a smaller --hicache-size frees pinned memory; watch a busy hour before",
    )


def never_read(seen: Seen) -> Finding | None:
    """Find a host tier that is written and never read."""
    written = seen.delta.backup_tokens if seen.delta.backup_tokens is not None else seen.delta.evicted_tokens
    if not seen.flags.hicache or seen.delta.host_cached_tokens != 0 or _pools_a_minute(seen) < TURNED_OVER:
        return None
    return Finding(
        name="host tier never read",
        weight=Weight.FAULT,
        cause="KV is copied to the host and nobody comes back for it",
        evidence=f"{written or 0:,} tokens left the device, 0 came back, {_hit(seen)}",
        next_step="HiCache does not help this traffic as it is: prove it with a search, or switch it off",
    )


def no_host_tier(seen: Seen) -> Finding | None:
    """Find evictions that HiCache might have caught."""
    if seen.flags.hicache or _pools_a_minute(seen) < TURNED_OVER:
        return None
    return Finding(
        name="evicted and lost",
        weight=Weight.ADVICE,
        cause="the working set does not fit on the device, and without HiCache what is evicted is computed again",
        evidence=f"{_pools_a_minute(seen):.1f} device pools evicted a minute, {_hit(seen)}",
        next_step="see whether prompts come back (hicache-tune analyze), then let hicache-tune search prove HiCache",
    )


def low_sharing(seen: Seen) -> Finding | None:
    """Find traffic whose prompts do not begin alike, which no cache can help."""
    rate = seen.delta.hit_rate
    if rate is None or rate > LITTLE_REUSE or _pools_a_minute(seen) >= TURNED_OVER:
        return None
    return Finding(
        name="low sharing",
        weight=Weight.ADVICE,
        cause="prompts do not begin alike: there is little for any cache to find",
        evidence=f"{_hit(seen)}, while little was evicted",
        next_step="check that clients send the same system prompt and their history word for word, and that a router "
        "keeps sessions on one server",
    )


def uneven_replicas(seen: Seen) -> Finding | None:
    """Find data-parallel replicas of which one is much fuller than another."""
    spreads = [max(m.usage_by_replica) - min(m.usage_by_replica) for m in seen.moments if len(m.usage_by_replica) > 1]
    if not spreads or sorted(spreads)[len(spreads) // 2] < UNEVEN:
        return None
    return Finding(
        name="replicas uneven",
        weight=Weight.FAULT,
        cause="one data-parallel replica is much fuller than another: its users wait and its cache is evicted",
        evidence=f"the fullest is ahead of the emptiest by {sorted(spreads)[len(spreads) // 2]:.0%} of a pool (median)",
        next_step="route sessions by their id to one replica, and look at --load-balance-method",
    )


def swapping(seen: Seen) -> Finding | None:
    """Find a host that swaps."""
    if not seen.swapped_bytes:
        return None
    return Finding(
        name="swapping",
        weight=Weight.FAULT,
        cause="the host moves memory to swap and back: the host pool competes with other processes",
        evidence=f"{seen.swapped_bytes / 2**20:,.0f} MiB in {seen.seconds:.0f} s",
        next_step="lower --hicache-size, or free memory; keep a fifth of it free",
    )


def full_and_healthy(seen: Seen) -> Finding | None:
    """Say that a full KV pool alone is no fault: a prefix cache fills whatever it is given."""
    usage, queue = seen.series(lambda g: g.token_usage), seen.series(lambda g: g.queued_requests)
    if not usage or max(usage) < 0.9 or (seen.delta.retracted or 0) > 0 or (queue and max(queue) > 1):
        return None
    return Finding(
        name="full and healthy",
        weight=Weight.HEALTHY,
        cause="the KV pool is nearly full and nobody waits: memory is put to use",
        evidence=f"usage up to {max(usage):.0%}, no request queued or put back, {_hit(seen)}",
        next_step="nothing",
    )


def host_full_and_healthy(seen: Seen) -> Finding | None:
    """Say that a full host pool is no fault while prompts are found in it."""
    fill, host = max(seen.series(lambda gauges: gauges.host_fill), default=0.0), seen.delta.host_cached_tokens or 0
    if fill < HOST_FULL or host <= LITTLE_REUSE * (seen.delta.prompt_tokens or 1) or host_pool_too_small(seen):
        return None
    return Finding(
        name="host pool full and healthy",
        weight=Weight.HEALTHY,
        cause="the host pool is full and prompts are found in it",
        evidence=f"host pool {fill:.0%} full, {host:,} prompt tokens came from it",
        next_step="nothing; whether a larger one pays is for hicache-tune search to prove",
    )


RULES: tuple[Rule, ...] = (
    restarted,
    over_capacity,
    eviction_stalls,
    host_pool_too_small,
    never_read,
    uneven_replicas,
    swapping,
    reload_storm,
    no_host_tier,
    host_pool_too_large,
    low_sharing,
    full_and_healthy,
    host_full_and_healthy,
)


def _pools_a_minute(seen: Seen) -> float:
    """How many times a minute as many tokens were evicted as the device holds."""
    pool, evicted = seen.flags.device_pool_tokens, seen.delta.evicted_tokens
    return 0.0 if not pool or not evicted else evicted / pool / (seen.seconds / 60)


def _hit(seen: Seen) -> str:
    rate = seen.delta.hit_rate
    return "hit rate not told" if rate is None else f"hit rate {rate:.0%}"
