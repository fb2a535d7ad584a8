"""Which GPUs the engine will use, of all that the host has.

NVML numbers all GPUs of the host in PCI order and knows nothing of CUDA_VISIBLE_DEVICES, so devices are chosen here
and held by UUID. A GPU that is split (MIG) is used by one of its instances, which have UUIDs of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import ConfigError

MIG_PREFIX = "MIG-"


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU of this host by its NVML index and its UUID, or an instance of it; `name` is its model."""

    index: int
    """Of the whole GPU, for an instance too."""
    uuid: str
    name: str = ""

    @property
    def is_instance(self) -> bool:
        """Whether it is a part of a GPU, made by MIG."""
        return self.uuid.startswith(MIG_PREFIX)


def used_devices(
    devices: Sequence[GpuDevice],
    visible: str | None,
    *,
    instances: Sequence[GpuDevice] = (),
    base_gpu_id: int = 0,
    count: int | None = None,
) -> tuple[GpuDevice, ...]:
    """Choose `count` GPUs from `base_gpu_id` on, of those that CUDA_VISIBLE_DEVICES shows, in its order.

    Entries are indices, UUIDs or unique beginnings of UUIDs, those of MIG `instances` included; an empty value or -1
    shows none. Of a split GPU that is named as a whole CUDA takes the first instance. Raises ConfigError for an entry
    that matches no GPU or several, and for a slice past the visible ones.
    """
    chosen = tuple(devices) if visible is None else _visible((*devices, *instances), visible)
    chosen = tuple(_first_instance(device, instances) for device in chosen)
    if not chosen:
        return ()
    end = len(chosen) if count is None else base_gpu_id + count
    if base_gpu_id >= len(chosen) or end > len(chosen):
        raise ConfigError(
            f"the engine asks for GPUs {base_gpu_id} to {max(base_gpu_id, end - 1)} of {len(chosen)}; "
            "lower --tp-size or --base-gpu-id, or show more in CUDA_VISIBLE_DEVICES"
        )
    return chosen[base_gpu_id:end]


def _first_instance(device: GpuDevice, instances: Sequence[GpuDevice]) -> GpuDevice:
    if device.is_instance:
        return device
    return next((instance for instance in instances if instance.index == device.index), device)


def _visible(devices: Sequence[GpuDevice], visible: str) -> tuple[GpuDevice, ...]:
    chosen: list[GpuDevice] = []
    for entry in (entry.strip() for entry in visible.split(",")):
        if entry in ("", "-1"):
            break  # CUDA ignores everything after the first invalid entry
        device = _match(devices, entry)
        if device in chosen:
            raise ConfigError(f"CUDA_VISIBLE_DEVICES={visible} names {device.uuid} twice; name each GPU once")
        chosen.append(device)
    return tuple(chosen)


def _match(devices: Sequence[GpuDevice], entry: str) -> GpuDevice:
    if entry.isdecimal():
        matches = [device for device in devices if device.index == int(entry) and not device.is_instance]
    else:
        matches = [device for device in devices if device.uuid.startswith(entry)]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(f"{device.index} ({device.uuid})" for device in devices) or "none"
    problem = "no such GPU" if not matches else f"{len(matches)} GPUs begin so"
    raise ConfigError(f"CUDA_VISIBLE_DEVICES entry {entry}: {problem}; this host has {known}")
