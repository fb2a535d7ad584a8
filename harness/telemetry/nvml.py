"""Memory, load and health of the GPUs that the engine uses, through NVML.

Only memory must be told; whatever else a GPU, a driver or a container does not show is None. Everything that pynvml
returns is untyped; no `Any` leaves this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from harness.errors import ConfigError, TelemetryError
from harness.telemetry.devices import GpuDevice, used_devices
from harness.telemetry.pcie_meter import PcieMeter
from harness.telemetry.readings import DeviceReading, GpuReading
from harness.telemetry.sources import Unavailable

AnswerT = TypeVar("AnswerT")
MOST_EVENTS = 64
"""A GPU that fails may report without end; no reading waits for more than so many reports."""


@dataclass(frozen=True, slots=True)
class NvmlUnavailable(Unavailable):
    """Why there is no device telemetry; device headroom is unknown then, never zero."""


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A used GPU. An instance of a split one has memory and processes of its own; the rest is the board's."""

    device: GpuDevice
    handle: Any
    board: Any
    meter: PcieMeter | None


class Nvml:
    """Reads the used GPUs; made by `open_nvml`, which also says when that is impossible."""

    def __init__(self, devices: Sequence[GpuDevice], handles: Mapping[str, Any], module: Any) -> None:
        self.devices = tuple(devices)
        self._module = module
        self._open = True
        self._gpus = tuple(self._gpu(device, handles) for device in devices)
        self._events = self._told(self._listen)

    @property
    def driver_version(self) -> str:
        """The version of the NVIDIA driver."""
        return str(self._module.nvmlSystemGetDriverVersion())

    def read(self) -> DeviceReading | NvmlUnavailable:
        """Read every used GPU; one that is lost makes the whole reading unavailable."""
        if not self._open:
            return NvmlUnavailable("NVML was closed")
        try:
            return DeviceReading(tuple(map(self._read_gpu, self._gpus)), self._xids())
        except self._module.NVMLError as error:
            return _explain(error)

    def close(self) -> None:
        """Shut NVML down."""
        if not self._open:
            return
        self._open = False
        try:
            for gpu in self._gpus:
                if gpu.meter is not None:
                    gpu.meter.close()
            if self._events is not None:
                self._module.nvmlEventSetFree(self._events)
        except self._module.NVMLError:
            pass  # nothing is left to give back when the driver is gone
        _shut_down(self._module)

    def _gpu(self, device: GpuDevice, handles: Mapping[str, Any]) -> _Gpu:
        handle = handles[device.uuid]
        if device.is_instance:
            # The link is shared with the other instances, so its traffic would not be ours.
            return _Gpu(device, handle, self._module.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle), None)
        return _Gpu(device, handle, handle, self._told(lambda: PcieMeter(handle, self._module)))

    def _listen(self) -> Any:
        nvml = self._module
        events = nvml.nvmlEventSetCreate()
        for gpu in self._gpus:
            nvml.nvmlDeviceRegisterEvents(gpu.board, nvml.nvmlEventTypeXidCriticalError, events)
        return events

    def _xids(self) -> tuple[int, ...] | None:
        if self._events is None:
            return None
        found: list[int] = []
        while len(found) < MOST_EVENTS and (event := self._told(self._next_event)) is not None:
            found.append(int(event.eventData))
        return tuple(found)

    def _next_event(self) -> Any:
        return self._module.nvmlEventSetWait_v2(self._events, 0)  # raises NVMLError_Timeout when there is none

    def _told(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        """Return an answer that a GPU may refuse: by age, by permission, in a container; None where it does."""
        try:
            return ask()
        except self._module.NVMLError_GpuIsLost:
            raise
        except self._module.NVMLError:
            return None

    def _read_gpu(self, gpu: _Gpu) -> GpuReading:
        nvml, board, told = self._module, gpu.board, self._told
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu.handle, version=nvml.nvmlMemory_v2)
        sent, received = (None, None) if gpu.device.is_instance else self._pcie_bytes(board)
        sent_per_s, received_per_s = (told(gpu.meter.read) if gpu.meter else None) or (None, None)
        power_mw = told(lambda: int(nvml.nvmlDeviceGetPowerUsage(board)))
        rows = told(lambda: nvml.nvmlDeviceGetRemappedRows(board))
        return GpuReading(
            uuid=gpu.device.uuid,
            total_bytes=int(memory.total),
            free_bytes=int(memory.free),
            used_bytes=int(memory.used),
            reserved_bytes=int(memory.reserved),
            utilisation_percent=told(lambda: int(nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu)),
            pcie_sent_bytes=sent,
            pcie_received_bytes=received,
            pcie_sent_bytes_per_s=sent_per_s,
            pcie_received_bytes_per_s=received_per_s,
            pcie_generation=told(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(board))),
            pcie_width=told(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(board))),
            process_bytes=told(lambda: self._process_bytes(gpu.handle)),
            power_w=None if power_mw is None else power_mw / 1000,
            sm_clock_mhz=told(lambda: int(nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_SM))),
            memory_clock_mhz=told(lambda: int(nvml.nvmlDeviceGetClockInfo(board, nvml.NVML_CLOCK_MEM))),
            clock_events=told(lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(board))),
            uncorrected_errors=told(lambda: self._uncorrected_errors(board)),
            remapped_rows=None if rows is None else int(rows[0]) + int(rows[1]),
        )

    def _process_bytes(self, handle: Any) -> dict[int, int]:
        processes = self._module.nvmlDeviceGetComputeRunningProcesses(handle)
        return {int(p.pid): int(p.usedGpuMemory) for p in processes if p.usedGpuMemory is not None}

    def _uncorrected_errors(self, board: Any) -> int:
        nvml = self._module
        kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return int(nvml.nvmlDeviceGetTotalEccErrors(board, kind, since))

    def _pcie_bytes(self, board: Any) -> tuple[int | None, int | None]:
        # Counters, not nvmlDeviceGetPcieThroughput: that one looks at 20 ms and misses bursts.
        nvml = self._module
        fields = [nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
        values = self._told(lambda: nvml.nvmlDeviceGetFieldValues(board, fields))
        if values is None:
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
        handles: dict[str, Any] = {}
        devices, instances = _found(module, handles)
        used = used_devices(devices, visible, instances=instances, base_gpu_id=base_gpu_id, count=count)
        if used:
            return Nvml(used, handles, module)
    except module.NVMLError as error:
        _shut_down(module)
        return _explain(error)
    except ConfigError:
        _shut_down(module)
        raise
    _shut_down(module)
    return NvmlUnavailable(
        "no GPU is visible" if devices else "the NVIDIA driver sees no GPU",
        "correct CUDA_VISIBLE_DEVICES, or go on without GPU metrics",
    )


def required(nvml: Nvml | NvmlUnavailable) -> Nvml:
    """Return NVML for a study with a device headroom constraint; raise TelemetryError where there is none."""
    if isinstance(nvml, Unavailable):
        raise TelemetryError(f"device headroom cannot be measured: {nvml}")
    return nvml


def _found(module: Any, handles: dict[str, Any]) -> tuple[list[GpuDevice], list[GpuDevice]]:
    """List the GPUs of the host and the instances of those that are split, and keep the handle of each by UUID."""
    devices, instances = [], []
    for index in range(module.nvmlDeviceGetCount()):
        board = module.nvmlDeviceGetHandleByIndex(index)
        devices.append(_named(module, index, board, handles))
        instances += [_named(module, index, handle, handles) for handle in _instances(module, board)]
    return devices, instances


def _named(module: Any, index: int, handle: Any, handles: dict[str, Any]) -> GpuDevice:
    device = GpuDevice(index, str(module.nvmlDeviceGetUUID(handle)), str(module.nvmlDeviceGetName(handle)))
    handles[device.uuid] = handle
    return device


def _instances(module: Any, board: Any) -> list[Any]:
    try:
        mode, _ = module.nvmlDeviceGetMigMode(board)
    except (module.NVMLError_NotSupported, module.NVMLError_FunctionNotFound):
        return []
    found = []
    if mode == module.NVML_DEVICE_MIG_ENABLE:
        for slot in range(module.nvmlDeviceGetMaxMigDeviceCount(board)):
            try:
                found.append(module.nvmlDeviceGetMigDeviceHandleByIndex(board, slot))
            except module.NVMLError_NotFound:
                continue  # slots may be empty, also before used ones
    return found


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
