"""Which engine a search launches: the one on this machine's GPUs, or the real SGLang on CPU."""

from __future__ import annotations

import os
from pathlib import Path

from harness.engine.cpu import engine as cpu_engine
from harness.engine.preflight import check_model
from harness.engine.spec import EngineSpec, ReadyLimits, find_local_engine
from scenarios.errors import ConfigError
from tuning.config import Effort, Search
from tuning.space import Engine

CPU_CORES_FOR_PINNING = 2


def default_model(engine: Engine) -> str | None:
    """Return the model that comes with the engine; None where the user names one."""
    return str(cpu_engine.find().model_path) if engine == "cpu" else None


def engine_spec(search: Search, effort: Effort) -> EngineSpec:
    """Describe the engine of `search`; raise EngineMissing or ConfigError with what to do."""
    check_model(search.model)
    ready = ReadyLimits(phase_s=effort.ready_timeout_s, total_s=3 * effort.ready_timeout_s)
    if search.engine == "cpu":
        return _cpu_spec(search, ready)
    if search.copy_gb_per_s is not None:
        raise ConfigError("--copy-limit is for --engine cpu; a GPU's copies are as fast as they are")
    python, version = find_local_engine(search.engine_python)
    return EngineSpec(
        python=python,
        model=search.model,
        sglang_version=version,
        base_flags=search.engine_args,
        tp_size=search.tp_size,
        ready=ready,
    )


def _cpu_spec(search: Search, ready: ReadyLimits) -> EngineSpec:
    """Describe the CPU engine, on a core of its own where there are two, so that client and engine do not compete."""
    if search.tp_size != 1 or search.engine_python is not None:
        raise ConfigError("--tp-size and --engine-python are not for --engine cpu, which runs on one core of its own")
    installed = cpu_engine.find()
    cores = sorted(os.sched_getaffinity(0))
    engine_cpus, load_cpus = ((cores[0],), (cores[1],)) if len(cores) >= CPU_CORES_FOR_PINNING else ((), ())
    return EngineSpec(
        python=Path(installed.python),
        model=search.model,
        sglang_version=installed.sglang_version,
        base_flags=(*installed.base_flags, *search.engine_args),
        env=installed.env(copy_gb_per_s=search.copy_gb_per_s),
        device="cpu",
        engine_cpus=engine_cpus,
        load_cpus=load_cpus,
        copy_gb_per_s=search.copy_gb_per_s,
        host_reserve_bytes=cpu_engine.HOST_RESERVE_BYTES,
        ready=ready,
    )
