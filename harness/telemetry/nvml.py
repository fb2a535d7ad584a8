"""Device memory, utilisation and PCIe traffic of the GPUs that the engine uses, through NVML.

NVML numbers all GPUs of the host in PCI order and knows nothing of CUDA_VISIBLE_DEVICES, so devices are
chosen here and held by UUID. Everything that pynvml returns is untyped; no `Any` leaves this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from harness.errors import ConfigError, TelemetryError
from harness.telemetry.sources import Unavailable


@dataclass(frozen=True, slots=True)
class NvmlUnavailable(Unavailable):
    """Why there is no device telemetry; device headroom is unknown then, never zero."""


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU of this host by its NVML index and its UUID; `name` is its model."""

    index: int
    uuid: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment; None where this GPU does not tell."""

    uuid: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    reserved_bytes: int
    """Kept by the driver; neither free nor used."""
    utilisation_percent: int | None
    pcie_sent_bytes: int | None
    """By the GPU since the driver was loaded; the hardware counter may wrap around."""
    pcie_received_bytes: int | None


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """The used GPUs at one moment; there is at least one."""

    gpus: tuple[GpuReading, ...]

    @property
    def free_bytes(self) -> int:
        """Free memory of the fullest GPU, the one that runs out first."""
        return min(gpu.free_bytes for gpu in self.gpus)

    @property
    def used_bytes(self) -> int:
        """Used memory of the fullest GPU."""
        return max(gpu.used_bytes for gpu in self.gpus)

    @property
    def utilisation_percent(self) -> int | None:
        """Utilisation of the busiest GPU; None when none tells."""
        return max(
            (gpu.utilisation_percent for gpu in self.gpus if gpu.utilisation_percent is not None),
            default=None,
        )

    @property
    def pcie_sent_bytes(self) -> int | None:
        """Sent by all used GPUs; None when one of them does not tell."""
        return _sum_of([gpu.pcie_sent_bytes for gpu in self.gpus])

    @property
    def pcie_received_bytes(self) -> int | None:
        """Received by all used GPUs; None when one of them does not tell."""
        return _sum_of([gpu.pcie_received_bytes for gpu in self.gpus])


class Nvml:
    """Reads the used GPUs; made by `open_nvml`, which also says when that is impossible."""

    def __init__(self, devices: tuple[GpuDevice, ...], handles: Sequence[Any], module: Any) -> None:
        self.devices = devices
        self._handles = tuple(handles)
        self._module = module
        self._open = True

    @property
    def driver_version(self) -> str:
        """The version of the NVIDIA driver."""
        return str(self._module.nvmlSystemGetDriverVersion())

    def read(self) -> DeviceReading | NvmlUnavailable:
        """Read every used GPU; one that is lost makes the whole reading unavailable."""
        if not self._open:
            return NvmlUnavailable("NVML was closed")
        try:
            return DeviceReading(tuple(self._read_gpu(*pair) for pair in zip(self.devices, self._handles, strict=True)))
        except self._module.NVMLError as error:
            return _explain(error)

    def close(self) -> None:
        """Shut NVML down."""
        if self._open:
            self._open = False
            _shut_down(self._module)

    def _read_gpu(self, device: GpuDevice, handle: Any) -> GpuReading:
        nvml = self._module
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        sent, received = self._pcie_bytes(handle)
        return GpuReading(
            uuid=device.uuid,
            total_bytes=int(memory.total),
            free_bytes=int(memory.free),
            used_bytes=int(memory.used),
            reserved_bytes=int(memory.reserved),
            utilisation_percent=self._utilisation_percent(handle),
            pcie_sent_bytes=sent,
            pcie_received_bytes=received,
        )

    def _utilisation_percent(self, handle: Any) -> int | None:
        try:
            return int(self._module.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._module.NVMLError_NotSupported:
            return None

    def _pcie_bytes(self, handle: Any) -> tuple[int | None, int | None]:
        # Counters, not nvmlDeviceGetPcieThroughput: that one looks at 20 ms and misses bursts.
        nvml = self._module
        fields = [nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
        try:
            values = nvml.nvmlDeviceGetFieldValues(handle, fields)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return None, None
        sent, received = (
            int(value.value.ullVal) if value.nvmlReturn == nvml.NVML_SUCCESS else None for value in values
        )
        return sent, received


def open_nvml(
    visible: str | None = None, *, base_gpu_id: int = 0, count: int | None = None, module: Any = pynvml
) -> Nvml | NvmlUnavailable:
    """Open the GPUs that the engine will use, or say why NVML cannot.

    `visible` is the value of CUDA_VISIBLE_DEVICES, None when it is not set; the engine takes `count` of the
    visible GPUs from `base_gpu_id` on. Raises ConfigError when that names a GPU that does not exist.
    """
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        return _explain(error)
    try:
        handles = [module.nvmlDeviceGetHandleByIndex(index) for index in range(module.nvmlDeviceGetCount())]
        devices = tuple(
            GpuDevice(index, str(module.nvmlDeviceGetUUID(handle)), str(module.nvmlDeviceGetName(handle)))
            for index, handle in enumerate(handles)
        )
        used = used_devices(devices, visible, base_gpu_id=base_gpu_id, count=count)
    except module.NVMLError as error:
        _shut_down(module)
        return _explain(error)
    except ConfigError:
        _shut_down(module)
        raise
    if not used:
        _shut_down(module)
        return NvmlUnavailable(
            "no GPU is visible" if devices else "the NVIDIA driver sees no GPU",
            "correct CUDA_VISIBLE_DEVICES, or go on without GPU metrics",
        )
    return Nvml(used, [handles[device.index] for device in used], module)


def required(nvml: Nvml | NvmlUnavailable) -> Nvml:
    """Return NVML for a study with a device headroom constraint; raise TelemetryError where there is none."""
    if isinstance(nvml, Unavailable):
        raise TelemetryError(f"device headroom cannot be measured: {nvml}")
    return nvml


def used_devices(
    devices: Sequence[GpuDevice], visible: str | None, *, base_gpu_id: int = 0, count: int | None = None
) -> tuple[GpuDevice, ...]:
    """Choose `count` GPUs from `base_gpu_id` on, of those that CUDA_VISIBLE_DEVICES shows, in its order.

    Entries are indices, UUIDs or unique beginnings of UUIDs; an empty value or -1 shows none. Raises
    ConfigError for an entry that matches no GPU or several, and for a slice past the visible ones.
    """
    chosen = tuple(devices) if visible is None else _visible(devices, visible)
    if not chosen:
        return ()
    end = len(chosen) if count is None else base_gpu_id + count
    if base_gpu_id >= len(chosen) or end > len(chosen):
        raise ConfigError(
            f"the engine asks for GPUs {base_gpu_id} to {max(base_gpu_id, end - 1)} of {len(chosen)}; "
            "lower --tp-size or --base-gpu-id, or show more in CUDA_VISIBLE_DEVICES"
        )
    return chosen[base_gpu_id:end]


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
        matches = [device for device in devices if device.index == int(entry)]
    else:
        matches = [device for device in devices if device.uuid.startswith(entry)]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(f"{device.index} ({device.uuid})" for device in devices) or "none"
    problem = "no such GPU" if not matches else f"{len(matches)} GPUs begin so"
    raise ConfigError(f"CUDA_VISIBLE_DEVICES entry {entry}: {problem}; this host has {known}")


_REASONS = {
    "NVMLError_LibraryNotFound": (
        "no NVIDIA driver library is installed",
        "run on a GPU host, or go on without GPU metrics",
    ),
    "NVMLError_LibRmVersionMismatch": (
        "the NVIDIA driver and its library have different versions",
        "reload the driver or reboot, or go on without GPU metrics",
    ),
    "NVMLError_DriverNotLoaded": (
        "the NVIDIA driver is not loaded",
        "load the driver or reboot, or go on without GPU metrics",
    ),
    "NVMLError_NoPermission": (
        "this user may not read the GPU",
        "give access to the NVIDIA device files, or go on without GPU metrics",
    ),
    "NVMLError_GpuIsLost": ("a GPU has fallen off the bus", "reset the GPU or reboot"),
    "NVMLError_FunctionNotFound": (
        "the NVIDIA driver is too old to report memory",
        "install driver 510 or newer, or go on without GPU metrics",
    ),
}


def _explain(error: Exception) -> NvmlUnavailable:
    name = type(error).__name__
    reason, advice = _REASONS.get(name, (f"NVML failed ({error})", "run nvidia-smi, or go on without GPU metrics"))
    return NvmlUnavailable(f"{reason} ({name.removeprefix('NVMLError_')})", advice)


def _shut_down(module: Any) -> None:
    try:
        module.nvmlShutdown()
    except module.NVMLError:
        return  # nothing is left to give back when the driver is gone


def _sum_of(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
