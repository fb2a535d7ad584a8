"""Engines on machines of a certain size, for what is known of them before a launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.engine.spec import EngineSpec
from harness.engine.surroundings import Surroundings
from tests.support.models import model_config
from tuning.space import Bounds

GB, GIB = 10**9, 2**30


def bounds(
    *, host_gb: int = 1000, device_gib: int | None = 80, fixed: dict[str, Any] | None = None, **spec: Any
) -> Bounds:
    """Describe Qwen3-8B on a machine with so much host memory, and as much on each of its devices."""
    engine = EngineSpec(
        python=Path("python"),
        model="m",
        sglang_version="0.5.15",
        config=model_config("qwen3-8b"),
        around=Surroundings(fixed=fixed or {}),
    )
    device = None if device_gib is None else device_gib * GIB
    return Bounds.of(replace(engine, **spec), host_total_bytes=host_gb * GB, device_total_bytes=device)
