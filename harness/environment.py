"""The conditions of a measurement. Measurements of different conditions are never pooled (design rule 11)."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata

import psutil

from harness.engine.spec import EngineSpec
from harness.telemetry import Nvml, NvmlUnavailable
from scenarios.strict import StrictModel

MAY_DIFFER = frozenset({"tool_version", "host", "memory_gib"})
"""A rented host is another each time, of the same make; some virtual machines show memory only as it is used."""


class Environment(StrictModel):
    """Where and on what a study measures."""

    host: str
    processor: str
    cores: int
    """That may be used: a trial may be kept to one half of a host."""
    memory_gib: int
    gpus: tuple[str, ...]
    """Models of the GPUs in use; empty without one."""
    driver: str | None
    """Version of the NVIDIA driver."""
    sglang_version: str
    model: str
    device: str
    copy_gb_per_s: float | None
    tool_version: str

    @classmethod
    def of(cls, spec: EngineSpec, device: Nvml | NvmlUnavailable) -> Environment:
        """Read the present conditions."""
        return cls(
            host=platform.node(),
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)),
            memory_gib=round(psutil.virtual_memory().total / 2**30),
            gpus=tuple(gpu.name for gpu in device.devices) if isinstance(device, Nvml) else (),
            driver=device.driver_version if isinstance(device, Nvml) else None,
            sglang_version=spec.sglang_version,
            model=spec.model,
            device=spec.device,
            copy_gb_per_s=spec.copy_gb_per_s,
            tool_version=metadata.version("hicache-tune"),
        )

    def differences(self, other: Environment) -> Iterator[str]:
        """Yield what differs, in words, apart from what may differ."""
        for name in self.differing(other):
            yield f"{name} was {getattr(other, name)}, is {getattr(self, name)}"

    def differing(self, other: Environment) -> Iterator[str]:
        """Yield the names of the fields that differ, apart from those that may."""
        for name in type(self).model_fields:
            if name not in MAY_DIFFER and getattr(self, name) != getattr(other, name):
                yield name


def _processor() -> str:
    """Return the processor's name, which `platform.processor` leaves empty on most Linux systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a kernel file, not a path of ours
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
