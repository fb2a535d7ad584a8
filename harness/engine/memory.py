"""What a setting will take of device and host memory, predicted before it is launched.

SGLang gives weights and KV pool together a share of the memory that is free before it loads anything
(`--mem-fraction-static`; [15] `model_runner_kv_cache_mixin.py:104-116`); graphs and activations live in the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.engine.flags import human_int
from harness.engine.memory_model import MemoryModel
from harness.engine.model_shape import activation_bytes_per_token, kv_bytes_per_token_and_rank, weight_bytes
from harness.engine.rewrites import is_on, value_of
from harness.engine.setting import DEFAULT_RATIO, Setting
from harness.engine.spec import EngineSpec
from harness.engine.surroundings import FlagValue
from scenarios.strict import StrictModel

MIB, GIB = 2**20, 2**30
CONTEXT_BYTES = round(1.3 * GIB)
"""What CUDA, the kernels and the communication of one rank take before the weights, as seen on an H200."""
GRAPH_BYTES, GRAPH_BYTES_PER_REQUEST = 50 * MIB, 2 * MIB
"""0.08 GiB for graphs up to 16 requests on an H200; 2 MiB for each request is SGLang's own reserve."""
PREFILL_GRAPH_BYTES, PREFILL_GRAPHS_MLA_BYTES = 8 * MIB, 1536 * MIB
PREFILL_SIZES = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, 10**9, 512))
"""Tokens of the prefills that are captured: from, to, step ([15] 3765-3772)."""
LARGE_GPU_BYTES, LARGE_GPU_RESERVE_BYTES = 60 * GIB, 10 * GIB

CHUNKS = ((35, 2048, 4096), (60, 4096, 4096), (160, 8192, 8192))
"""Below so many GiB of device memory: tokens of a prefill chunk in 0.5.15 and in 0.5.23; 16384 above."""
GRAPH_SIZES_15 = ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512))
GRAPH_SIZES_23 = ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512))
"""Below so many GiB: the largest captured batch with less than 4 ranks, and with more; 512 above."""


@dataclass(frozen=True)
class DeviceRoom:
    """The memory of the fullest device before a launch, in bytes."""

    total_bytes: int
    free_bytes: int


class DeviceForecast(StrictModel):
    """What one rank takes of its device, in bytes."""

    weights_bytes: int
    kv_pool_bytes: int
    """0 when the weights leave nothing of the share."""
    graphs_bytes: int
    activations_bytes: int
    kv_bytes_per_token: int
    mem_fraction_static: float
    ranks: int = 1
    context_bytes: int = CONTEXT_BYTES

    @property
    def static_bytes(self) -> int:
        """Weights and KV pool."""
        return self.weights_bytes + self.kv_pool_bytes

    @property
    def peak_bytes(self) -> int:
        """All of it at once, under load."""
        return self.context_bytes + self.static_bytes + self.graphs_bytes + self.activations_bytes

    @property
    def pools_bytes(self) -> int:
        """The KV pools of all ranks."""
        return self.kv_pool_bytes * self.ranks

    @property
    def pool_tokens(self) -> int:
        """Tokens that the KV pool holds."""
        return self.kv_pool_bytes // self.kv_bytes_per_token


class MemoryForecast(StrictModel):
    """What was predicted of one trial; what is None could not be predicted."""

    device: DeviceForecast | None = None
    """By the formulas alone."""
    device_peak_bytes: int | None = None
    """What the fullest device takes under load, after its correction."""
    device_peak_error_bytes: int | None = None
    device_pool_bytes: int | None = None
    """The KV pools of all ranks, after their correction."""
    host_pool_bytes: int | None = None
    """The host pools of all ranks."""


class SeenMemory(StrictModel):
    """What a trial really took; what is None was not told or not measured."""

    device_peak_bytes: int | None = None
    device_pool_bytes: int | None = None
    """The KV pools of all ranks."""
    host_pool_bytes: int | None = None
    """The host pools of all ranks."""


class Learned:
    """What the trials of a study have taught about predictions of memory."""

    def __init__(self, trials: Iterable[tuple[MemoryForecast, SeenMemory]] = ()) -> None:
        self.device_peak, self.device_pool = MemoryModel(), MemoryModel()
        self.largest_pool_bytes: int | None = None
        for forecast, seen in trials:
            self.learn(forecast, seen)

    def learn(self, forecast: MemoryForecast, seen: SeenMemory) -> None:
        """Take in what was predicted of one trial, by the formulas, and what it took."""
        if seen.device_pool_bytes is not None:
            self.largest_pool_bytes = max(seen.device_pool_bytes, self.largest_pool_bytes or 0)
        if forecast.device is None:
            return
        if seen.device_peak_bytes is not None:
            self.device_peak.learn(forecast.device.peak_bytes, seen.device_peak_bytes)
        if seen.device_pool_bytes is not None:
            self.device_pool.learn(forecast.device.pools_bytes, seen.device_pool_bytes)


def forecast(setting: Setting, spec: EngineSpec, room: DeviceRoom | None, learned: Learned) -> MemoryForecast:
    """Predict what `setting` takes of both memories, corrected by what was learned."""
    device = forecast_device(setting, spec, room) if room is not None and spec.device == "cuda" else None
    peak = learned.device_peak.correct(device.peak_bytes) if device else None
    pool = learned.device_pool.correct(device.pools_bytes).value_bytes if device else learned.largest_pool_bytes
    return MemoryForecast(
        device=device,
        device_peak_bytes=peak and peak.value_bytes,
        device_peak_error_bytes=peak and peak.error_bytes,
        device_pool_bytes=pool,
        host_pool_bytes=host_pool_bytes(setting, spec.ranks, device_pool_bytes=pool),
    )


def forecast_device(setting: Setting, spec: EngineSpec, room: DeviceRoom) -> DeviceForecast | None:
    """Predict what one rank of `setting` takes; None where the model or the share is not known before a launch."""
    dtype = _text(setting, spec, "dtype", "auto")
    dummy = value_of(setting, spec.around, "load-format") == "dummy"
    quantization = value_of(setting, spec.around, "quantization")
    weights = weight_bytes(
        spec.model,
        spec.config,
        dtype=dtype,
        dummy=dummy,
        quantization=None if quantization is None else str(quantization),
    )
    per_token = kv_bytes_of_rank(setting, spec)
    activations = activation_bytes_per_token(spec.config, dtype, tp_size=spec.tp_size)
    fraction = static_fraction(setting, spec, room)
    if weights is None or not per_token or activations is None or fraction is None:
        return None
    weights //= spec.tp_size
    pool = kv_pool_bytes(room, fraction, weights)
    if (limit := _number(value_of(setting, spec.around, "max-total-tokens"))) is not None:
        pool = min(pool, limit * per_token)
    return DeviceForecast(
        weights_bytes=weights,
        kv_pool_bytes=pool,
        graphs_bytes=_graphs(setting, spec, room),
        activations_bytes=activations * _chunk(setting, spec, room),
        kv_bytes_per_token=per_token,
        mem_fraction_static=fraction,
        ranks=spec.ranks,
    )


def seen_memory(
    setting: Setting,
    spec: EngineSpec,
    *,
    device_pool_tokens: int | None,
    host_pool_tokens: int | None,
    room: DeviceRoom | None,
    least_free_bytes: int | None,
) -> SeenMemory:
    """Turn what a trial showed into bytes: its pools in tokens of one rank, and the device's least free memory."""
    per_token = kv_bytes_of_rank(setting, spec)

    def pools(tokens: int | None) -> int | None:
        return None if tokens is None or per_token is None else tokens * per_token * spec.ranks

    peak = None if room is None or least_free_bytes is None else room.free_bytes - least_free_bytes
    return SeenMemory(
        device_peak_bytes=peak,
        device_pool_bytes=pools(device_pool_tokens),
        host_pool_bytes=pools(host_pool_tokens),
    )


def kv_bytes_of_rank(setting: Setting, spec: EngineSpec) -> int | None:
    """Return the KV bytes of one token on one rank; None when the model does not tell."""
    dtype, kv_dtype = _text(setting, spec, "dtype", "auto"), _text(setting, spec, "kv-cache-dtype", "auto")
    return kv_bytes_per_token_and_rank(spec.config, dtype, kv_dtype=kv_dtype, ranks=spec.attention_ranks)


def host_pool_bytes(setting: Setting, ranks: int, *, device_pool_bytes: int | None) -> int | None:
    """Predict the host memory that the pool takes over all ranks; None when it is not known yet.

    `device_pool_bytes` is the KV pool over all ranks, from which a ratio's size follows.
    """
    if not setting.hicache:
        return 0
    if setting.hicache_size is not None:
        return int(setting.hicache_size * 1e9) * ranks
    if device_pool_bytes is None:
        return None
    return int((setting.hicache_ratio or DEFAULT_RATIO) * device_pool_bytes)


def default_fraction(
    spec: EngineSpec, room: DeviceRoom, *, chunk_tokens: int, graph_batch: int, prefill_graphs_bytes: int
) -> float | None:
    """Compute the share that SGLang chooses itself ([15] 3623-3690, [23] memory_hook.py:281-345); None if unknown.

    0.5.23 sizes the pool of other models than MLA after it has captured its graphs, which no formula foretells.
    """
    if spec.around.is_late and not spec.around.uses_mla:
        return None
    reserved_mib = 512 + max(chunk_tokens, 2048) * 1.5 + graph_batch * 2 + spec.tp_size / 8 * 1024
    reserved = reserved_mib * MIB + prefill_graphs_bytes
    if room.total_bytes > LARGE_GPU_BYTES:
        reserved = max(reserved, LARGE_GPU_RESERVE_BYTES)
    return round((room.total_bytes - reserved) / room.total_bytes, 3)


def kv_pool_bytes(room: DeviceRoom, fraction: float, weights_bytes: int) -> int:
    """Return the KV pool of one rank: what its weights leave of the share of what is free before they are loaded."""
    return max(0, round(fraction * (room.free_bytes - CONTEXT_BYTES)) - weights_bytes)


def static_fraction(setting: Setting, spec: EngineSpec, room: DeviceRoom) -> float | None:
    """Return the share that weights and KV pool get: the one given, or SGLang's own; None where it cannot be told."""
    given = value_of(setting, spec.around, "mem-fraction-static")
    if given is not None:
        return float(given)
    return default_fraction(
        spec,
        room,
        chunk_tokens=_chunk(setting, spec, room),
        graph_batch=_graph_batch(setting, spec, room),
        prefill_graphs_bytes=_prefill_graphs(setting, spec, room),
    )


def _chunk(setting: Setting, spec: EngineSpec, room: DeviceRoom) -> int:
    """Return the tokens of a prefill chunk; a batch of whole prompts when chunks are off."""
    given = _number(value_of(setting, spec.around, "chunked-prefill-size"))
    if given is not None and given > 0:
        return given
    if given is not None:
        return _number(value_of(setting, spec.around, "max-prefill-tokens")) or 16384
    for below_gib, early, late in CHUNKS:
        if room.total_bytes < below_gib * GIB:
            return late if spec.around.is_late else early
    return 16384


def _graph_batch(setting: Setting, spec: EngineSpec, room: DeviceRoom) -> int:
    """Return the largest batch that is captured as a graph; 0 when none is."""
    if any(is_on(setting, spec.around, name) for name in ("disable-cuda-graph", "disable-decode-cuda-graph")):
        return 0
    for name in ("cuda-graph-max-bs-decode", "cuda-graph-max-bs"):
        if given := _number(value_of(setting, spec.around, name)):
            return given
    for below_gib, few, many in GRAPH_SIZES_23 if spec.around.is_late else GRAPH_SIZES_15:
        if room.total_bytes < below_gib * GIB:
            return few if spec.tp_size < 4 else many
    return 512


def _graphs(setting: Setting, spec: EngineSpec, room: DeviceRoom) -> int:
    batch = _graph_batch(setting, spec, room)
    decode = GRAPH_BYTES + batch * GRAPH_BYTES_PER_REQUEST if batch else 0
    return decode + _prefill_graphs(setting, spec, room)


def _prefill_graphs(setting: Setting, spec: EngineSpec, room: DeviceRoom) -> int:
    """Return what SGLang reserves for the graphs of prefill, which CUDA has by default ([15] 3673-3682)."""
    off = any(is_on(setting, spec.around, name) for name in ("disable-cuda-graph", "disable-prefill-cuda-graph"))
    if off or value_of(setting, spec.around, "cuda-graph-backend-prefill") == "disabled":
        return 0
    if spec.around.uses_mla:
        return PREFILL_GRAPHS_MLA_BYTES
    chunk = _chunk(setting, spec, room)
    return PREFILL_GRAPH_BYTES * sum(len(range(low, min(high, chunk) + 1, step)) for low, high, step in PREFILL_SIZES)


def _text(setting: Setting, spec: EngineSpec, name: str, otherwise: str) -> str:
    value = value_of(setting, spec.around, name)
    return otherwise if value is None else str(value)


def _number(value: FlagValue | None) -> int | None:
    try:
        return None if value is None else human_int(str(value))
    except ValueError:
        return None
