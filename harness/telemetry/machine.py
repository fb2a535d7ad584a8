"""How busy the whole machine is, so that work that is neither ours nor the engine's can be told."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class MachineCpu:
    """CPU seconds of all cores together since boot. In a container this is still the whole machine."""

    busy_s: float
    """Neither idle nor waiting for a disk; of every process, in the kernel and out of it."""
    stolen_s: float
    """In which this virtual machine wanted a core and its host gave none."""
    harness_cpu_s: float
    """Of this process, and of those of its children that have ended: the load processes, once a load is over."""

    @classmethod
    def read(cls) -> MachineCpu:
        """Read the kernel's counters."""
        now, own = psutil.cpu_times(), os.times()
        return cls(
            busy_s=now.user + now.nice + now.system + now.irq + now.softirq,
            stolen_s=now.steal,
            harness_cpu_s=own.user + own.system + own.children_user + own.children_system,
        )
