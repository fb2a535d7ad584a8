"""What can be known before a second is spent on a launch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.engine.failure import Failure, FailureKind, LaunchFailed
from harness.engine.memory import DeviceRoom, Learned, MemoryForecast, forecast, host_pool_bytes
from harness.engine.process import GRPC_OFFSET, port_is_free
from harness.engine.refusals import refusals
from harness.engine.setting import Setting
from harness.engine.spec import SGLANG_RESERVE_BYTES, EngineSpec
from harness.engine.surroundings import Surroundings
from harness.errors import ConfigError, Interrupted

BUSY_LIMIT_S = 60.0
"""How long memory that others hold is waited for: the engine of the last trial may still be giving its own back."""
HOST_KEEP_FREE = 0.2
"""Share of the host's memory that we leave free whatever SGLang allows (safety rule of design.md)."""
WEIGHTS_SURE = 0.95
"""A share that is smaller than this much of the weights is too small, however the formulas are off."""
HEAVY_SWAP_BYTES_PER_S = 20e6
SWAP_WATCH_S = 1.0
LAST_PORT = 65_535


@dataclass(frozen=True)
class HostRoom:
    """Host memory that a launch can count on, in bytes. Swap is no room: the pool is pinned, and others would swap."""

    available_bytes: int
    total_bytes: int
    reserve_bytes: int = SGLANG_RESERVE_BYTES
    """What SGLang keeps free: it refuses a pool that is larger than what is available less this."""

    @property
    def for_host_pool_bytes(self) -> int:
        """The largest host pool, over all ranks, that keeps 20 % and SGLang's own reserve free."""
        return max(0, self.available_bytes - self._keep_bytes)

    @property
    def when_idle_bytes(self) -> int:
        """The largest host pool if nothing else held memory."""
        return max(0, self.total_bytes - self._keep_bytes)

    @property
    def _keep_bytes(self) -> int:
        return max(int(HOST_KEEP_FREE * self.total_bytes), self.reserve_bytes)


def preflight(
    setting: Setting,
    spec: EngineSpec,
    *,
    read_host: Callable[[], HostRoom],
    device: DeviceRoom | None,
    learned: Learned,
    should_stop: Callable[[], bool] = lambda: False,
    busy_limit_s: float = BUSY_LIMIT_S,
) -> MemoryForecast:
    """Predict what `setting` takes; raise LaunchFailed when it cannot work, and nothing is launched.

    `device` is the fullest device before the launch, None without NVML. The forecast belongs into the trial's record;
    of an engine elsewhere it says nothing, and only the rules of its flags are checked.
    """
    check_rules(setting, spec)
    if not spec.here:
        return MemoryForecast()
    expected = forecast(setting, spec, device, learned)
    if device is not None:
        check_device(expected, device)
    check_host_pool(
        setting,
        spec,
        read_host,
        device_pool_bytes=expected.device_pool_bytes,
        should_stop=should_stop,
        busy_limit_s=busy_limit_s,
    )
    return expected


def check_rules(setting: Setting, spec: EngineSpec) -> None:
    """Raise LaunchFailed when SGLang would refuse the flags of `setting` together."""
    for said in refusals(setting, spec.around):
        raise LaunchFailed(Failure(FailureKind.BAD_FLAG, f"{said}; nothing was launched", None))


def check_device(expected: MemoryForecast, room: DeviceRoom) -> None:
    """Raise LaunchFailed when the weights do not leave room for KV, or the peak is more than the device has.

    Only what is sure is refused: the peak less its error, which shrinks as the study learns.
    """
    device = expected.device
    if device is None:
        return
    share = device.mem_fraction_static * room.free_bytes
    if WEIGHTS_SURE * device.weights_bytes >= share:
        said = (
            f"the weights take {device.weights_bytes / 1e9:.1f} GB of each device, and --mem-fraction-static "
            f"{device.mem_fraction_static:g} gives them and the KV pool {share / 1e9:.1f} GB; nothing was launched"
        )
        raise LaunchFailed(Failure(FailureKind.KV_POOL_TOO_SMALL, said, None))
    if expected.device_peak_bytes is None or expected.device_peak_error_bytes is None:
        return
    if expected.device_peak_bytes - expected.device_peak_error_bytes > room.free_bytes:
        said = (
            f"the device would need {expected.device_peak_bytes / 1e9:.1f} GB (+-"
            f"{expected.device_peak_error_bytes / 1e9:.1f}) under load and has {room.free_bytes / 1e9:.1f} GB free: "
            f"weights {device.weights_bytes / 1e9:.1f}, KV {device.kv_pool_bytes / 1e9:.1f}, graphs and activations "
            f"{(device.graphs_bytes + device.activations_bytes) / 1e9:.1f}; nothing was launched"
        )
        raise LaunchFailed(Failure(FailureKind.GPU_OOM_UNDER_LOAD, said, None))


def check_host_pool(
    setting: Setting,
    spec: EngineSpec,
    read_room: Callable[[], HostRoom],
    *,
    device_pool_bytes: int | None,
    should_stop: Callable[[], bool] = lambda: False,
    busy_limit_s: float = BUSY_LIMIT_S,
) -> None:
    """Raise LaunchFailed when the host pool of `setting` cannot fit; unknown sizes pass.

    `device_pool_bytes` is the KV pool over all ranks, from which a ratio's size follows. A pool that would fit if
    others did not hold memory is waited for, and then is not the setting's fault.
    """
    needed = host_pool_bytes(setting, spec.ranks, device_pool_bytes=device_pool_bytes)
    if not needed:
        return
    deadline = time.monotonic() + busy_limit_s
    while needed > (room := read_room()).for_host_pool_bytes:
        said = (
            f"a host pool of {needed / 1e9:.1f} GB over {spec.ranks} rank(s) does not fit: "
            f"{room.for_host_pool_bytes / 1e9:.1f} GB of {room.total_bytes / 1e9:.1f} GB can be given away "
            "with 20 % kept free; nothing was launched"
        )
        if needed > room.when_idle_bytes:
            raise LaunchFailed(Failure(FailureKind.HOST_MEMORY_REFUSED, said, None))
        if should_stop():
            raise Interrupted
        if time.monotonic() > deadline:
            raise LaunchFailed(Failure(FailureKind.HOST_MEMORY_BUSY, said, None))
        time.sleep(1.0)


def check_swap(read_swapped: Callable[[], int | None], *, watch_s: float = SWAP_WATCH_S) -> None:
    """Raise ConfigError when this machine swaps heavily now, which a pinned host pool would make worse.

    `read_swapped` tells the bytes swapped in and out since boot, None where the kernel hides them. Swap that is only
    full, and not moving, costs nothing.
    """
    before, started = read_swapped(), time.monotonic()
    if not before:
        return
    time.sleep(watch_s)
    after, seconds = read_swapped(), time.monotonic() - started
    moved = 0 if after is None else (after - before) / seconds
    if moved > HEAVY_SWAP_BYTES_PER_S:
        raise ConfigError(
            f"this machine swaps {moved / 1e6:.0f} MB/s, and a host pool is pinned memory that pushes out even more: "
            "end what takes the memory, then run again, or search with --hicache off"
        )


def check_port(port: int, host: str, around: Surroundings) -> None:
    """Raise ConfigError when the engine could not listen on `port`: SGLang notices only after it has loaded.

    0.5.15 derives its gRPC port by adding 10,000, and refuses to start when that is no port.
    """
    if not 1 <= port <= LAST_PORT:
        raise ConfigError(f"port {port}: no such port; give one from 1 to {LAST_PORT}")
    derived = port + GRPC_OFFSET
    if derived > LAST_PORT and not around.is_late:
        raise ConfigError(
            f"port {port}: SGLang derives its gRPC port {derived} from it, which is no port; "
            f"give one up to {LAST_PORT - GRPC_OFFSET}"
        )
    if not port_is_free(port, host):
        raise ConfigError(f"port {port} of {host} cannot be bound; end what listens there, or give another port")
    if not around.is_late and not port_is_free(derived, host):
        raise ConfigError(
            f"port {derived} of {host}, which SGLang derives from {port} for gRPC, cannot be bound; give another port"
        )


def check_model(model: str) -> None:
    """Raise ConfigError when `model` looks like a path and is not a model folder; hub names pass."""
    path = Path(model).expanduser()
    looks_local = model.startswith(("/", "./", "../", "~")) or path.exists()
    if not looks_local:
        return
    if not path.is_dir():
        raise ConfigError(
            f"--model {model}: no such folder; give a folder with config.json or a hub name like Org/Name"
        )
    if not (path / "config.json").is_file():
        raise ConfigError(f"--model {model}: no config.json in it; give the folder that holds the model's files")
