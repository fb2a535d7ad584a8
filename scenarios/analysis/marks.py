"""What each candidate for the host pool would bring, and what it would ask of the bus."""

from __future__ import annotations

import numpy as np

from scenarios.analysis.distances import Reuse
from scenarios.analysis.machine import HostPool, Machine
from scenarios.analysis.prior import CachePrior
from scenarios.analysis.record import Mark
from scenarios.analysis.stream import AccessStream
from scenarios.analysis.weights import token_weights

PEAK_WINDOWS = 60
SHORTEST_WINDOW_S = 10.0
"""The peak of the reload rate is that of the busiest 60th of the load, though of no less than 10 s."""


def mark(
    prior: CachePrior, machine: Machine, device_tokens: int, pool: HostPool | None, stream: AccessStream, found: Reuse
) -> Mark:
    """Judge one host pool, or with None the device pool alone."""
    host_tokens = pool.tokens if pool else 0
    expected = prior.expected(device_tokens, host_tokens, inclusive=machine.inclusive)
    together = max(device_tokens, host_tokens) if machine.inclusive else device_tokens + host_tokens
    prompt_tokens = int(stream.prompt_tokens[stream.counted].sum())
    saved = round(expected.host * prompt_tokens)
    rates = _reload_tokens_per_s(stream, found, device_tokens, together) if pool else None
    return Mark(
        pool=pool.name if pool else "",
        host_tokens=host_tokens,
        host_gb=machine.gb(host_tokens),
        together_tokens=together,
        device_hit_rate=expected.device,
        host_hit_rate=expected.host,
        saved_tokens=saved,
        saved_work=expected.host / (1 - expected.device) if expected.device < 1 else 0.0,
        saved_prefill_s=saved / machine.prefill_tokens_per_s if machine.prefill_tokens_per_s else None,
        reload_s=None if (gb := machine.gb(saved)) is None else gb / machine.copy_gb_per_s,
        reload_gb_per_s=machine.gb(rates[0]) if rates else None,
        peak_reload_gb_per_s=machine.gb(rates[1]) if rates else None,
    )


def _reload_tokens_per_s(
    stream: AccessStream, found: Reuse, device_tokens: int, together_tokens: int
) -> tuple[float, float] | None:
    """Return mean and peak of the tokens that come from the host; None when the load takes no time."""
    duration_s = float(stream.at_s[-1])
    if duration_s <= 0:
        return None
    windows = int(np.clip(duration_s / SHORTEST_WINDOW_S, 1, PEAK_WINDOWS))
    held = (found.distance.astype(np.int64) + 1) * (stream.block_tokens / stream.rate)
    reloaded = (held > device_tokens) & (held <= together_tokens)
    request = stream.request[reloaded]
    window = np.minimum(stream.at_s[request] * (windows / duration_s), windows - 1).astype(np.int64)
    tokens = np.bincount(window, weights=token_weights(stream).tokens[reloaded], minlength=windows)
    return float(tokens.sum()) / duration_s, float(tokens.max()) * windows / duration_s
