"""Which engine a search launches: the one on this machine's GPUs, or the real SGLang on CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.engine.cpu import engine as cpu_engine
from harness.engine.flag_source import number_of, read_flags
from harness.engine.flags import FlagTable, check_arguments, check_flag, split_arguments
from harness.engine.model_shape import architecture, read_model_config, text_config
from harness.engine.preflight import check_model, check_storage
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec, ReadyLimits, find_local_engine
from harness.engine.surroundings import Platform, Surroundings
from scenarios.errors import ConfigError
from tuning.config import Effort, Search
from tuning.space import Engine, Space

CPU_CORES_FOR_PINNING = 2


def default_model(engine: Engine) -> str | None:
    """Return the model that comes with the engine; None where the user names one."""
    return str(cpu_engine.find().model_path) if engine == "cpu" else None


def engine_spec(search: Search, effort: Effort) -> EngineSpec:
    """Describe the engine of `search`; raise EngineMissing or ConfigError with what to do."""
    check_model(search.model)
    ready = ReadyLimits(phase_s=effort.ready_timeout_s, total_s=3 * effort.ready_timeout_s)
    if search.engine == "cpu":
        if (search.tp_size, search.dp_size) != (1, 1) or search.engine_python is not None:
            raise ConfigError(
                "--tp-size, --dp-size and --engine-python are not for --engine cpu, which runs on one core of its own"
            )
        return _checked(
            _cpu(search.model, ready, search.copy_gb_per_s),
            search.engine_args,
            platform="cpu",
            own_flags=cpu_engine.BASE_FLAGS,
            space=search.space,
        )
    if search.copy_gb_per_s is not None:
        raise ConfigError("--copy-limit is for --engine cpu; a GPU's copies are as fast as they are")
    local = _local(search.model, search.engine_python)
    spec = replace(local, tp_size=search.tp_size, dp_size=search.dp_size, ready=ready)
    return _checked(spec, search.engine_args, platform="cuda", space=search.space)


def local_spec(model: str, python: Path | None, arguments: Sequence[str]) -> EngineSpec:
    """Describe the SGLang of `python` for one launch, with further engine flags."""
    check_model(model)
    return _checked(_local(model, python), arguments, platform="cuda")


def cpu_spec(model: str, arguments: Sequence[str]) -> EngineSpec:
    """Describe the CPU engine for one launch, with further engine flags."""
    check_model(model)
    return _checked(_cpu(model, ReadyLimits(), None), arguments, platform="cpu", own_flags=cpu_engine.BASE_FLAGS)


def _local(model: str, python: Path | None) -> EngineSpec:
    found, version = find_local_engine(python)
    return EngineSpec(python=found, model=model, sglang_version=version)


def _cpu(model: str, ready: ReadyLimits, copy_gb_per_s: float | None) -> EngineSpec:
    """Describe the CPU engine, on a core of its own where there are two, so that client and engine do not compete."""
    installed = cpu_engine.find()
    cores = sorted(os.sched_getaffinity(0))
    engine_cpus, load_cpus = ((cores[0],), tuple(cores[1:])) if len(cores) >= CPU_CORES_FOR_PINNING else ((), ())
    return EngineSpec(
        python=Path(installed.python),
        model=model,
        sglang_version=installed.sglang_version,
        env=installed.env(copy_gb_per_s=copy_gb_per_s),
        device="cpu",
        engine_cpus=engine_cpus,
        load_cpus=load_cpus,
        copy_gb_per_s=copy_gb_per_s,
        host_reserve_bytes=cpu_engine.HOST_RESERVE_BYTES,
        ready=ready,
    )


def _checked(
    spec: EngineSpec,
    arguments: Sequence[str],
    *,
    platform: Platform,
    own_flags: tuple[str, ...] = (),
    space: Space | None = None,
) -> EngineSpec:
    """Check the user's flags against the engine's own, and give `spec` what decides how a setting is read.

    Without a `space` nothing is searched, and HiCache's own flags may be given for the one launch.
    """
    table = read_flags(spec.python, spec.sglang_version, spec.env)
    checked = check_arguments(arguments, table, searched=space is not None)
    if space is not None:
        _check_space(space, table)
    flags = (*own_flags, *checked.arguments)
    config = read_model_config(spec.model)
    around = Surroundings(
        version=number_of(spec.sglang_version),
        platform=platform,
        fixed={given.name: given.value for given in split_arguments(flags)},
        defaults={flag.name: flag.default for flag in table.flags if flag.default is not None},
        architecture=architecture(config),
        uses_mla="kv_lora_rank" in text_config(config) if config else None,
    )
    check_storage(around, {**os.environ, **spec.env})
    return replace(spec, base_flags=flags, around=around, config=config, warnings=checked.warnings)


def _check_space(space: Space, table: FlagTable) -> None:
    """Raise ConfigError for a searched flag or value that the engine does not have."""
    for dimension in space.dimensions:
        if dimension.name not in Setting.model_fields and dimension.name != "transfer":
            for value in dimension.ends:
                check_flag(dimension.name, value, table, where=f"--search {dimension.name}={dimension.values_text}")
