"""What is seen from outside while a load runs: memory, the engine's own counters, and our own exporter."""

from harness.telemetry.delta import CacheDelta
from harness.telemetry.exporter import Exporter
from harness.telemetry.host import HostMemory
from harness.telemetry.metrics import EngineGauges, MetricsSnapshot, Ranks
from harness.telemetry.nvml import Nvml, NvmlUnavailable, open_nvml, required
from harness.telemetry.sampler import Headroom, Sampler, Sources, Telemetry, sampling
from harness.telemetry.sources import MetricsSource, Scrape, Source, Unavailable

__all__ = [
    "CacheDelta",
    "EngineGauges",
    "Exporter",
    "Headroom",
    "HostMemory",
    "MetricsSnapshot",
    "MetricsSource",
    "Nvml",
    "NvmlUnavailable",
    "Ranks",
    "Sampler",
    "Scrape",
    "Source",
    "Sources",
    "Telemetry",
    "Unavailable",
    "open_nvml",
    "required",
    "sampling",
]
