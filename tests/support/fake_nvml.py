"""A pynvml module with GPUs of our making; its errors are the real ones, its calls answer as on a real host."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml


@dataclass
class FakeGpu:
    """One GPU. `lost` makes every reading fail."""

    uuid: str
    used_bytes: int = 0
    total_bytes: int = 80_000
    reserved_bytes: int = 300
    utilisation_percent: int = 50
    pcie_bytes: tuple[int, int] | None = (7, 9)
    lost: bool = False


@dataclass
class FakeNvml:
    """Stands for the pynvml module. `init_error` names the error that nvmlInit raises."""

    gpus: list[FakeGpu] = field(default_factory=list)
    init_error: str | None = None
    opened: int = 0

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
        if gpu.lost:
            raise pynvml.NVMLError_GpuIsLost
        return SimpleNamespace(
            total=gpu.total_bytes,
            reserved=gpu.reserved_bytes,
            used=gpu.used_bytes,
            free=gpu.total_bytes - gpu.used_bytes - gpu.reserved_bytes,
        )

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        """Return the utilisation."""
        return SimpleNamespace(gpu=gpu.utilisation_percent, memory=0)

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, fields: list[int]) -> list[SimpleNamespace]:
        """Return the PCIe counters, or that each is not supported."""
        status = pynvml.NVML_SUCCESS if gpu.pcie_bytes else pynvml.NVML_ERROR_NOT_SUPPORTED
        values = gpu.pcie_bytes or (0, 0)
        return [
            SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(ullVal=value))
            for value, _ in zip(values, fields, strict=True)
        ]
