"""How fast bytes go over a GPU's PCIe link, from the GPU's own performance monitor (GPM; Hopper and later)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

MIB = 2**20
SHORTEST_S, LONGEST_S = 0.1, 5.0
"""NVML asks for at least 100 ms between two samples. A longer gap is no load: it holds a launch or a pause."""


class PcieMeter:
    """Compares the monitor's state with that of the reading before. `handle` and `module` are pynvml's."""

    def __init__(self, handle: Any, module: Any, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Hold two samples; raise NVMLError where the GPU has no such monitor or may not be asked."""
        self._handle, self._module, self._clock_s = handle, module, clock_s
        if not module.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise module.NVMLError_NotSupported
        self._before, self._now = module.nvmlGpmSampleAlloc(), module.nvmlGpmSampleAlloc()
        self._before_s: float | None = None

    def read(self) -> tuple[float | None, float | None]:
        """Return the bytes per second that the GPU sent and received since the reading before; None for the first."""
        now_s = self._clock_s()
        passed_s = None if self._before_s is None else now_s - self._before_s
        if passed_s is not None and passed_s < SHORTEST_S:
            return None, None
        self._module.nvmlGpmSampleGet(self._handle, self._now)
        self._before, self._now, self._before_s = self._now, self._before, now_s
        if passed_s is None or passed_s > LONGEST_S:
            return None, None
        return self._compare(older=self._now, newer=self._before)

    def close(self) -> None:
        """Give the samples back."""
        for sample in (self._before, self._now):
            self._module.nvmlGpmSampleFree(sample)

    def _compare(self, *, older: Any, newer: Any) -> tuple[float | None, float | None]:
        nvml = self._module
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        asked.sample1, asked.sample2 = older, newer
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC
        asked.metrics[1].metricId = nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC
        nvml.nvmlGpmMetricsGet(asked)
        sent, received = (
            float(metric.value) * MIB if metric.nvmlReturn == nvml.NVML_SUCCESS else None
            for metric in asked.metrics[:2]
        )
        return sent, received
