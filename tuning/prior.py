"""What is expected of a setting before anything is launched: how large its pools are, and what they will hit.

It orders proposals and breaks ties between them. It never excludes a setting, as it knows nothing of what a flag costs:
on an H200 a host pool smaller than the working set hit more than none, and was slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.engine.memory import MIB, DeviceRoom, Learned, forecast, host_pool_bytes, kv_bytes_of_rank
from harness.engine.model_shape import weight_bytes
from harness.engine.rewrites import value_of
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from scenarios.analysis import Assumptions, CachePrior, Machine, analyse, load_of_scenario
from scenarios.model import Scenario

RELOAD_COST = 0.1
"""What a token costs that comes from the host, in computed tokens: an H200 copies ten times as fast as it computes."""
LEAST_COST = 0.01
PAGE_TOKENS = 16
CPU_FRACTION = 0.88
"""The share of its virtual device that SGLang takes on CPU by default."""


@dataclass(frozen=True)
class Pools:
    """How many tokens the two pools hold, those of all copies of the model together."""

    device_tokens: float
    host_tokens: float


@dataclass(frozen=True)
class Expected:
    """What is expected of one setting: its pools, and the shares of the prompt tokens that come from each."""

    device_tokens: float
    host_tokens: float
    device_hits: float
    host_hits: float

    @property
    def cost(self) -> float:
        """What is left to do for a prompt token, in tokens to compute."""
        return max(LEAST_COST, 1 - self.device_hits - (1 - RELOAD_COST) * self.host_hits)


@dataclass(frozen=True)
class Prior:
    """Foretells settings from the hit curve of a load and from how large their pools are."""

    curve: CachePrior
    pools: Callable[[Setting], Pools | None]

    def expected(self, setting: Setting) -> Expected | None:
        """Return what is expected of `setting`; None where its pools cannot be foretold."""
        pools = self.pools(setting)
        if pools is None:
            return None
        inclusive = setting.hicache_write_policy != "write_back"
        hits = self.curve.expected(pools.device_tokens, pools.host_tokens, inclusive=inclusive)
        return Expected(pools.device_tokens, pools.host_tokens, hits.device, hits.host)


def curve_of(scenario: Scenario, seed: int) -> CachePrior | None:
    """Return the hit rate of the scenario's sessions by cache size; None when its prompts tell nothing of sharing.

    Raises ScenarioError for a scenario that is still to be sized by an engine.
    """
    load = load_of_scenario(scenario, seed, page_tokens=PAGE_TOKENS, assumed=Assumptions())
    cache = analyse(load, Machine()).cache
    return cache.curve if cache else None


def pools_of(setting: Setting, spec: EngineSpec, device_bytes: int | None) -> Pools | None:
    """Foretell the pools of `setting` on devices of this size, all free; None where the formulas do not reach."""
    per_token = kv_bytes_of_rank(setting, spec)
    device_pool = _device_pool_bytes(setting, spec, device_bytes)
    if not per_token or not device_pool:
        return None
    host_pool = host_pool_bytes(setting, spec.ranks, device_pool_bytes=device_pool) or 0
    copies = spec.dp_size / (per_token * spec.ranks)
    return Pools(device_pool * copies, host_pool * copies)


def _device_pool_bytes(setting: Setting, spec: EngineSpec, device_bytes: int | None) -> int | None:
    """Return the KV pools of all ranks."""
    if spec.device == "cpu":
        return _cpu_pool_bytes(setting, spec)
    room = DeviceRoom(device_bytes, device_bytes) if device_bytes else None
    return forecast(setting, spec, room, Learned()).device_pool_bytes


def _cpu_pool_bytes(setting: Setting, spec: EngineSpec) -> int | None:
    """Return what the virtual device of the CPU engine has beside the weights, which is charged for nothing else."""
    weights = weight_bytes(spec.model, spec.config, dtype=str(value_of(setting, spec.around, "dtype")))
    size_mib = spec.env.get("HICACHE_TUNE_CPU_DEVICE_MIB")
    if weights is None or size_mib is None:
        return None
    return max(0, round((setting.mem_fraction_static or CPU_FRACTION) * int(size_mib) * MIB) - weights)
