"""What can work on a machine, by preflight's own rules and with all of its memory at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from harness.engine.failure import LaunchFailed
from harness.engine.memory import DeviceRoom, Learned, forecast
from harness.engine.preflight import HostRoom, check_device, check_host_pool, check_rules
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from tuning.space.dimension import HICACHE

MEMORY_FLAGS = frozenset(
    {HICACHE, "hicache_ratio", "hicache_size", "mem_fraction_static"}
    | {"chunked-prefill-size", "max-prefill-tokens", "max-total-tokens", "kv-cache-dtype"}
    | {"dtype", "quantization", "load-format", "hicache-host-memory-mode", "dllm-algorithm", "disable-radix-cache"}
    | {"cuda-graph-max-bs", "cuda-graph-max-bs-decode", "cuda-graph-backend-prefill", "disable-cuda-graph"}
    | {"disable-decode-cuda-graph", "disable-prefill-cuda-graph"}
)
"""What the forecast of memory depends on, also through what SGLang makes of a setting."""
RULE_FLAGS = frozenset(
    {HICACHE, "page_size", "chunked-prefill-size", "dllm-algorithm", "attention-backend", "decode-attention-backend"}
    | {"prefill-attention-backend", "disable-radix-cache", "enable-int8-mamba-checkpoint", "enable-unified-memory"}
    | {"enable-lmcache", "enable-unified-cache-external-linker", "hicache-storage-backend", "hicache-host-memory-mode"}
    | {"enable-kv-cache-sharding", "dcp-size", "speculative-algorithm", "enable-hisparse", "radix-eviction-policy"}
    | {"radix-eviction-policy-config", "enable-session-radix-cache"}
)
"""What the rules depend on by which SGLang refuses flags."""
NOTHING_LAUNCHED = "; nothing was launched"


@dataclass(frozen=True)
class Bounds:
    """What an engine can run. What others hold of the memory now may be back later, so it is not looked at."""

    spec: EngineSpec
    host: HostRoom | None = None
    """None where the engine's machine is not this one."""
    device: DeviceRoom | None = None

    @classmethod
    def of(cls, spec: EngineSpec, *, host_total_bytes: int, device_total_bytes: int | None) -> Self:
        """Describe the engine's machine; `device_total_bytes` is its smallest device's, None where it is not known."""
        if not spec.here:
            return cls(spec)
        device = None if device_total_bytes is None else DeviceRoom(device_total_bytes, device_total_bytes)
        return cls(spec, HostRoom(host_total_bytes, host_total_bytes, spec.host_reserve_bytes), device)

    def refusal(self, setting: Setting, learned: Learned | None = None) -> str | None:
        """Say why preflight would refuse `setting`, which a sampler may hear without a trial; None when it would not.

        `learned` is how far the study's forecasts of memory were off so far.
        """
        return self.broken_rule(setting) or self._too_large(setting, learned or Learned(), for_certain=False)

    def broken_rule(self, setting: Setting) -> str | None:
        """Say by which rule SGLang would refuse the flags; None when it would not."""
        return _said(lambda: check_rules(setting, self.spec))

    def too_large(self, setting: Setting) -> str | None:
        """Say which memory is not enough for certain, however far off the first forecast is; None when it may be."""
        return self._too_large(setting, Learned(), for_certain=True)

    def _too_large(self, setting: Setting, learned: Learned, *, for_certain: bool) -> str | None:
        host, device = self.host, self.device
        if host is None:
            return None
        expected = forecast(setting, self.spec, device, learned)
        if device is not None and (said := _said(lambda: check_device(expected, device))):
            return said
        pool = expected.device_pool_bytes
        if for_certain and expected.device is not None:
            pool = learned.device_pool.correct(expected.device.pools_bytes).least_bytes
        return _said(lambda: check_host_pool(setting, self.spec, lambda: host, device_pool_bytes=pool))


def _said(check: Callable[[], None]) -> str | None:
    try:
        check()
    except LaunchFailed as refused:
        return refused.failure.said.removesuffix(NOTHING_LAUNCHED)
    return None
