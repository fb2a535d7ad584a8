"""What a while of watching shows, in figures: tiers of the prompts, reloads, evictions, the queue, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.diagnose.seen import Seen
from harness.telemetry import EngineGauges
from scenarios.strict import StrictModel

GIB = 2**30


class Figures(StrictModel):
    """None is what the engine does not tell, never zero. Seconds, tokens, bytes, and shares."""

    prompt_share_by_tier: dict[str, float]
    """Part of the prompt tokens that each tier had."""
    reloads: int | None
    reloaded_tokens: int | None
    reloaded_bytes: int | None
    reload_s: float | None
    """Time in which copies ran; 0.5.15 does not measure it."""
    evicted_tokens: int | None
    eviction_s: float | None
    """Time in which evictions blocked the scheduler."""
    queued_mean: float | None
    queued_most: float | None
    device_pool_fullest: float | None
    host_pool_fullest: float | None
    host_available_least_bytes: int | None
    """None when the engine runs on another machine."""

    @classmethod
    def of(cls, seen: Seen) -> Figures:
        """Take them from what was seen."""
        delta, queued = seen.delta, seen.series(lambda gauges: gauges.queued_requests)
        tiers = {
            "device": delta.device_cached_tokens,
            "host": delta.host_cached_tokens,
            "storage": delta.storage_cached_tokens,
        }
        prompt = delta.prompt_tokens or 0
        return cls(
            prompt_share_by_tier={tier: tokens / prompt for tier, tokens in tiers.items() if tokens and prompt},
            reloads=delta.load_back_count,
            reloaded_tokens=delta.load_back_tokens,
            reloaded_bytes=delta.load_back_bytes,
            reload_s=None if delta.load_back_seconds_is_bookkeeping else delta.load_back_seconds,
            evicted_tokens=delta.evicted_tokens,
            eviction_s=delta.eviction_seconds,
            queued_mean=sum(queued) / len(queued) if queued else None,
            queued_most=max(queued, default=None),
            device_pool_fullest=_most(seen, lambda gauges: gauges.token_usage),
            host_pool_fullest=_most(seen, lambda gauges: gauges.host_fill),
            host_available_least_bytes=seen.host_available_least_bytes,
        )

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name them for people; what is not known is left out."""
        if self.prompt_share_by_tier:
            shares = ", ".join(f"{tier} {share:.0%}" for tier, share in self.prompt_share_by_tier.items())
            yield "prompt tokens from a cache", shares
        if self.reloaded_tokens is not None:
            took = "" if self.reload_s is None else f", {self.reload_s:.2f} s of copies"
            size = "" if self.reloaded_bytes is None else f", {self.reloaded_bytes / GIB:.2f} GiB"
            yield "reloaded", f"{self.reloaded_tokens:,} tokens in {self.reloads or 0:,} reloads{size}{took}"
        if self.evicted_tokens is not None:
            blocked = "" if self.eviction_s is None else f", {self.eviction_s:.2f} s in which the scheduler waited"
            yield "evicted", f"{self.evicted_tokens:,} tokens{blocked}"
        if self.queued_mean is not None:
            yield "queue", f"{self.queued_mean:.1f} requests on average, {self.queued_most:.0f} at most"
        if self.device_pool_fullest is not None:
            host = "" if self.host_pool_fullest is None else f", host pool {self.host_pool_fullest:.0%}"
            yield "fullest", f"KV pool {self.device_pool_fullest:.0%}{host}"
        if self.host_available_least_bytes is not None:
            yield "least host memory available", f"{self.host_available_least_bytes / GIB:.1f} GiB"


def _most(seen: Seen, pick: Callable[[EngineGauges], float | None]) -> float | None:
    return max(seen.series(pick), default=None)
