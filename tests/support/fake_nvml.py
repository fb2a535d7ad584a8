"""A pynvml module with GPUs of our making; its errors are the real ones, its calls answer as on a real host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml


@dataclass
class FakeGpu:
    """One GPU, or one instance of a split one. `lost` makes every reading fail.

    What `refused` names the real driver would refuse: for its age, or to this user.
    """

    uuid: str
    used_bytes: int = 0
    total_bytes: int = 80_000
    reserved_bytes: int = 300
    utilisation_percent: int = 50
    pcie_bytes: tuple[int, int] | None = (7, 9)
    lost: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    """Errors of pynvml by the name of the function that raises them."""
    instances: list[FakeGpu] = field(default_factory=list)
    """Of a split GPU."""
    processes: Mapping[int, int | None] = field(default_factory=dict)
    """Bytes by process id."""
    power_mw: int = 350_000
    clock_events: int = 0
    uncorrected_errors: int = 0
    link: tuple[int, int] = (5, 16)
    """Generation and width."""
    pcie_mib_per_s: tuple[float, float] | None = (100.0, 200.0)
    """Of the performance monitor; None for a GPU that has none."""


@dataclass
class FakeNvml:
    """Stands for the pynvml module. `init_error` names the error that nvmlInit raises."""

    gpus: list[FakeGpu] = field(default_factory=list)
    init_error: str | None = None
    opened: int = 0
    xids: list[int] = field(default_factory=list)
    """Errors that the driver has not told yet."""
    gpm_samples: int = 0
    """Samples that were not given back."""
    _taken: int = 0

    def _ask(self, gpu: FakeGpu, function: str) -> None:
        if gpu.lost:
            raise pynvml.NVMLError_GpuIsLost
        if function in gpu.refused:
            raise getattr(pynvml, gpu.refused[function])

    def __getattr__(self, name: str) -> Any:
        """Errors and constants are pynvml's own."""
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:
        """Count an opening, or fail."""
        if self.init_error:
            raise getattr(pynvml, self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        """Count a closing."""
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        """Name a driver."""
        return "580.1"

    def nvmlDeviceGetCount(self) -> int:
        """Count the GPUs."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        """Return the GPU, which is its own handle."""
        return self.gpus[index]

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        """Return the model: all are alike."""
        return "Fake GPU"

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        """Return the UUID."""
        return gpu.uuid

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int | None = None) -> SimpleNamespace:
        """Return the memory, version 2 only."""
        assert version == pynvml.nvmlMemory_v2
        self._ask(gpu, "nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(
            total=gpu.total_bytes,
            reserved=gpu.reserved_bytes,
            used=gpu.used_bytes,
            free=gpu.total_bytes - gpu.used_bytes - gpu.reserved_bytes,
        )

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        """Return the utilisation."""
        self._ask(gpu, "nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=gpu.utilisation_percent, memory=0)

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[int]) -> list[SimpleNamespace]:
        """Return the PCIe counters, or that each is not supported."""
        self._ask(gpu, "nvmlDeviceGetFieldValues")
        status = pynvml.NVML_SUCCESS if gpu.pcie_bytes else pynvml.NVML_ERROR_NOT_SUPPORTED
        values = gpu.pcie_bytes or (0, 0)
        return [
            SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(ullVal=value))
            for value, _ in zip(values, fields, strict=True)
        ]

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        """Say whether the GPU is split, now and after a reset."""
        self._ask(gpu, "nvmlDeviceGetMigMode")
        return [int(bool(gpu.instances))] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        """Count the slots for instances, some of which are empty."""
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, slot: int) -> FakeGpu:
        """Return the instance in every other slot, as a real GPU leaves gaps."""
        if slot % 2 or slot // 2 >= len(gpu.instances):
            raise pynvml.NVMLError_NotFound
        return gpu.instances[slot // 2]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: FakeGpu) -> FakeGpu:
        """Return the whole GPU."""
        return next(gpu for gpu in self.gpus if instance in gpu.instances)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        """Return the processes."""
        self._ask(gpu, "nvmlDeviceGetComputeRunningProcesses")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes.items()]

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        """Return the power in mW."""
        self._ask(gpu, "nvmlDeviceGetPowerUsage")
        return gpu.power_mw

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        """Return a clock in MHz."""
        self._ask(gpu, "nvmlDeviceGetClockInfo")
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[kind]

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        """Return why the clocks are low."""
        self._ask(gpu, "nvmlDeviceGetCurrentClocksEventReasons")
        return gpu.clock_events

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, since: int) -> int:
        """Return the uncorrected errors since the driver was loaded; nothing else is asked for."""
        assert (kind, since) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        self._ask(gpu, "nvmlDeviceGetTotalEccErrors")
        return gpu.uncorrected_errors

    def nvmlDeviceGetRemappedRows(self, gpu: FakeGpu) -> tuple[int, int, int, int]:
        """Return rows remapped for corrected and for uncorrected errors, whether one is pending, whether one failed."""
        self._ask(gpu, "nvmlDeviceGetRemappedRows")
        return 1, 2, 0, 0

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: FakeGpu) -> int:
        """Return the generation of the link."""
        self._ask(gpu, "nvmlDeviceGetCurrPcieLinkGeneration")
        return gpu.link[0]

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: FakeGpu) -> int:
        """Return the lanes of the link."""
        return gpu.link[1]

    def nvmlEventSetCreate(self) -> FakeNvml:
        """Return the set of events: this host's."""
        return self

    def nvmlEventSetFree(self, events: FakeNvml) -> None:
        """Give the set back."""

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, kind: int, events: FakeNvml) -> None:
        """Listen to critical errors."""
        assert kind == pynvml.nvmlEventTypeXidCriticalError
        self._ask(gpu, "nvmlDeviceRegisterEvents")

    def nvmlEventSetWait_v2(self, events: FakeNvml, timeout_ms: int) -> SimpleNamespace:
        """Return the next error; there is nothing to wait for."""
        assert timeout_ms == 0
        if not self.xids:
            raise pynvml.NVMLError_Timeout
        return SimpleNamespace(eventData=self.xids.pop(0))

    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> SimpleNamespace:
        """Say whether the GPU has a performance monitor."""
        self._ask(gpu, "nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=int(gpu.pcie_mib_per_s is not None))

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        """Make an empty sample."""
        self.gpm_samples += 1
        return SimpleNamespace(taken=0, gpu=None)

    def nvmlGpmSampleFree(self, sample: SimpleNamespace) -> None:
        """Take it back."""
        self.gpm_samples -= 1

    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: SimpleNamespace) -> None:
        """Fill it."""
        self._ask(gpu, "nvmlGpmSampleGet")
        self._taken += 1
        sample.taken, sample.gpu = self._taken, gpu

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        """Make an empty question."""
        return SimpleNamespace(metrics=[SimpleNamespace(nvmlReturn=0, value=0.0, metricId=None) for _ in range(8)])

    def nvmlGpmMetricsGet(self, asked: SimpleNamespace) -> None:
        """Answer what passed between two samples, of which the older must come first."""
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        assert asked.sample1.taken < asked.sample2.taken
        rates = dict(
            zip(
                (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC),
                asked.sample2.gpu.pcie_mib_per_s,
                strict=True,
            )
        )
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = rates[metric.metricId]
