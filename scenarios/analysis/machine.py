"""The machine a load is judged for, in plain figures: what it can hold, copy and compute."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scenarios.analysis.curve import HitCurve

DEFAULT_COPY_GB_PER_S = 20.0
"""What a GPU on PCIe 4.0 x16 copies from pinned host memory, with room to spare; PCIe 5.0 has about twice that."""
DEFAULT_RATIOS = (2, 4, 8)
"""Host pools that are looked at when none is named, in device pools; 2 is SGLang's own default."""


@dataclass(frozen=True)
class HostPool:
    """One candidate for the host pool."""

    name: str
    """As a flag says it, such as `--hicache-size 30`."""
    tokens: int


@dataclass(frozen=True)
class Machine:
    """What is known of the machine; None is unknown."""

    device_tokens: int | None = None
    """KV pool of the GPU: tokens that are held at a time."""
    host_pools: tuple[HostPool, ...] = ()
    kv_bytes_per_token: int | None = None
    """What one token takes on one rank: in its device pool, its host pool, and on its bus."""
    copy_gb_per_s: float = DEFAULT_COPY_GB_PER_S
    """From host to device, each rank."""
    prefill_tokens_per_s: float | None = None
    host_gb_limit: float | None = None
    """The most that a host pool may take, each rank."""
    inclusive: bool = True
    """True for write-through policies (see `CachePrior.expected`)."""

    def gb(self, tokens: float) -> float | None:
        """Return the size of so many tokens on one rank in GB, the unit of `--hicache-size`."""
        return None if self.kv_bytes_per_token is None else tokens * self.kv_bytes_per_token / 1e9

    def sized(self, gb: int) -> HostPool:
        """Return the host pool of `--hicache-size gb`; needs the bytes of a token."""
        if not self.kv_bytes_per_token:
            raise ValueError("a host pool in GB needs the KV bytes of a token")
        return HostPool(f"--hicache-size {gb}", int(gb * 1e9 / self.kv_bytes_per_token))

    def pools_for(self, curve: HitCurve) -> tuple[HostPool, ...]:
        """Return the host pools to look at, smallest first: those named, or multiples of the device pool and the knee.

        Of the latter, those over `host_gb_limit` give way to one of that size.
        """
        pools = set(self.host_pools) or self._default_pools(curve)
        return tuple(sorted(pools, key=lambda pool: (pool.tokens, pool.name)))

    def _default_pools(self, curve: HitCurve) -> set[HostPool]:
        if self.device_tokens is None:
            return set()
        pools = {HostPool(f"--hicache-ratio {ratio}", ratio * self.device_tokens) for ratio in DEFAULT_RATIOS}
        knee = curve.knee(self.device_tokens) - (0 if self.inclusive else self.device_tokens)
        if (gb := self.gb(knee)) is not None:
            pools.add(self.sized(max(1, math.ceil(gb))))
        if self.host_gb_limit is None:
            return pools
        limit = self.sized(int(self.host_gb_limit))
        within = {pool for pool in pools if pool.tokens <= limit.tokens}
        return within if len(within) == len(pools) else within | {limit}
