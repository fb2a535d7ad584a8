"""Which engine a search measures: on this machine's GPUs, in a container, one of somebody else's, or SGLang on CPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.engine.api_key import api_key_headers
from harness.engine.attach import AttachLauncher, Attachment, RestartHook, attached_spec, check_hook
from harness.engine.client import EngineClient
from harness.engine.cpu import engine as cpu_engine
from harness.engine.docker import DockerLauncher, Image
from harness.engine.flag_source import number_of, read_flags, shipped
from harness.engine.flags import FlagTable, check_arguments, check_flag, split_arguments
from harness.engine.handle import Launcher
from harness.engine.image import OFFLINE, hub_mount, read_image_flags
from harness.engine.launch import ProcessLauncher
from harness.engine.model_shape import architecture, read_model_config, text_config
from harness.engine.preflight import check_model
from harness.engine.setting import Setting
from harness.engine.spec import MEASURING_FLAGS, EngineSpec, ReadyLimits, find_local_engine
from harness.engine.storage import StorageTier
from harness.engine.surroundings import Platform, Surroundings
from harness.errors import EngineUnreachable
from scenarios.errors import ConfigError
from tuning.config import Effort, Search
from tuning.space import Engine, Space

CPU_CORES_FOR_PINNING = 2

ONLY_FOR: Mapping[str, tuple[str, tuple[Engine, ...]]] = {
    "engine_python": ("--engine-python", ("local",)),
    "image": ("--image", ("docker",)),
    "url": ("--url", ("attach",)),
    "restart_hook": ("--restart-hook", ("attach",)),
    "restart_input": ("--restart-input", ("attach",)),
    "api_key_env": ("--api-key-env", ("attach",)),
    "engine_port": ("--engine-port", ("local", "docker", "cpu")),
    "tp_size": ("--tp-size", ("local", "docker")),
    "dp_size": ("--dp-size", ("local", "docker")),
}
"""The flags that say something to some engines only."""


def default_model(engine: Engine) -> str | None:
    """Return the model that comes with the engine; None where the user names one."""
    return str(cpu_engine.find().model_path) if engine == "cpu" else None


def engine_spec(search: Search, effort: Effort) -> EngineSpec:
    """Describe the engine of `search`; raise EngineMissing or ConfigError with what to do."""
    _refuse_what_says_nothing(search)
    check_model(search.model)
    ready = ReadyLimits(phase_s=effort.ready_timeout_s, total_s=3 * effort.ready_timeout_s)
    if search.engine == "cpu":
        spec = _cpu(search.model, ready, search.copy_gb_per_s)
        table = read_flags(spec.python, spec.sglang_version, spec.env)
        own = cpu_engine.BASE_FLAGS
        spec = _checked(spec, search.engine_args, table, platform="cpu", own_flags=own, space=search.space)
    elif search.engine == "attach":
        spec = _attached(search, ready)
    else:
        spec, table = (
            _in_docker(search.model, search.image) if search.engine == "docker" else _here(search.model, search)
        )
        spec = replace(spec, tp_size=search.tp_size, dp_size=search.dp_size, ready=ready)
        spec = _checked(spec, search.engine_args, table, space=search.space)
    return replace(spec, port=search.engine_port)


def local_spec(model: str, python: Path | None, arguments: Sequence[str]) -> EngineSpec:
    """Describe the SGLang of `python` for one launch, with further engine flags."""
    check_model(model)
    spec = _local(model, python)
    return _checked(spec, arguments, read_flags(spec.python, spec.sglang_version, spec.env))


def docker_spec(model: str, image: str | None, arguments: Sequence[str]) -> EngineSpec:
    """Describe the SGLang of a Docker image for one launch, with further engine flags."""
    check_model(model)
    spec, table = _in_docker(model, image)
    return _checked(spec, arguments, table)


def cpu_spec(model: str, arguments: Sequence[str]) -> EngineSpec:
    """Describe the CPU engine for one launch, with further engine flags."""
    check_model(model)
    spec = _cpu(model, ReadyLimits(), None)
    table = read_flags(spec.python, spec.sglang_version, spec.env)
    return _checked(spec, arguments, table, platform="cpu", own_flags=cpu_engine.BASE_FLAGS)


def command_of(search: Search, spec: EngineSpec, setting: Setting) -> tuple[str, ...]:
    """Return the command by which a user runs `setting`; empty when nothing is launched for it."""
    return (launcher_of(search, spec, Path()) or ProcessLauncher(spec)).command(setting)


def launcher_of(search: Search, spec: EngineSpec, folder: Path, *, gpus: Sequence[str] = ()) -> Launcher | None:
    """Return how the engine of `search` is started; None for a process of this machine, which is the usual way.

    `folder` keeps what finds a container again, and `gpus` are the UUIDs of those in use.
    """
    if search.engine == "docker":
        return DockerLauncher(spec, image_of(search.image, spec.model, gpus), folder)
    if search.engine == "attach":
        return AttachLauncher(attachment(search, timeout_s=spec.ready.phase_s), spec.fixed_flags, spec.model)
    return None


def image_of(name: str | None, model: str, gpus: Sequence[str] = ()) -> Image:
    """Describe the image and what its containers see; raise ConfigError without a name, or for a model not at hand."""
    if name is None:
        raise ConfigError("--image is missing; name an image that has SGLang, such as lmsysorg/sglang:v0.5.15")
    mounts = () if Path(model).expanduser().is_dir() else (hub_mount(model),)
    return Image(name, gpus=tuple(gpus), mounts=mounts)


def attachment(search: Search, *, timeout_s: float = 900.0) -> Attachment:
    """Describe where the engine of `search` is and what restarts it; raise ConfigError for what is no address."""
    if search.url is None:
        raise ConfigError("--url is missing; give the address of the server to measure, such as http://127.0.0.1:30000")
    hook: RestartHook | None = None
    if search.restart_hook:
        given = {"command": search.restart_hook, "hand_over": search.restart_input, "timeout_s": timeout_s}
        hook = RestartHook.parse(given, where="--restart-hook")
    return Attachment.parse({"url": search.url, "restart": hook}, where="--url")


def ask_running(url: str, api_key_env: str | None) -> dict[str, Any]:
    """Return what the engine at `url` says of itself; raise ConfigError when it does not answer."""
    client = EngineClient(url, api_key_headers(api_key_env))
    try:
        return client.server_info()
    except EngineUnreachable as problem:
        raise ConfigError(
            f"--url: {problem}; start it, correct the address, or name its key with --api-key-env"
        ) from None
    finally:
        client.close()


def _refuse_what_says_nothing(search: Search) -> None:
    """Raise ConfigError for a flag of another kind of engine, which would be passed over in silence."""
    if search.engine == "cpu" and ((search.tp_size, search.dp_size) != (1, 1) or search.engine_python is not None):
        raise ConfigError(
            "--tp-size, --dp-size and --engine-python are not for --engine cpu, which runs on one core of its own"
        )
    if search.engine != "cpu" and search.copy_gb_per_s is not None:
        raise ConfigError("--copy-limit is for --engine cpu; a GPU's copies are as fast as they are")
    for name, (flag, engines) in ONLY_FOR.items():
        if search.engine not in engines and getattr(search, name) != Search.model_fields[name].default:
            raise ConfigError(f"{flag} is for --engine {' or '.join(engines)}, not {search.engine}; leave it out")


def _here(model: str, search: Search) -> tuple[EngineSpec, FlagTable]:
    spec = _local(model, search.engine_python)
    return spec, read_flags(spec.python, spec.sglang_version, spec.env)


def _local(model: str, python: Path | None) -> EngineSpec:
    found, version = find_local_engine(python)
    return EngineSpec(python=found, model=model, sglang_version=version)


def _in_docker(model: str, name: str | None) -> tuple[EngineSpec, FlagTable]:
    image = image_of(name, model)
    table = read_image_flags(image)
    env = OFFLINE if image.mounts else {}
    return EngineSpec(python=Path(image.python), model=model, sglang_version=table.sglang_version, env=env), table


def _attached(search: Search, ready: ReadyLimits) -> EngineSpec:
    """Describe an engine that is not ours; raise ConfigError when it cannot be measured or restarted."""
    to = attachment(search)
    info = ask_running(to.base_url, search.api_key_env)
    spec = replace(attached_spec(info, search.model, near=to.is_near), ready=ready)
    if to.restart is not None:
        check_hook(to.restart)
        table = shipped(spec.sglang_version)
        return _checked(spec, search.engine_args, table, platform=spec.around.platform, space=search.space)
    if search.engine_args:
        raise ConfigError("--engine-arg: nothing restarts the engine; give --restart-hook, or leave it out")
    missing = [flag for flag in MEASURING_FLAGS if not info.get(flag.removeprefix("--").replace("-", "_"))]
    if missing:
        raise ConfigError(
            f"the engine at {to.base_url} runs without {' and '.join(missing)}, so its caches cannot be seen; "
            "restart it with them"
        )
    return spec


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
    table: FlagTable,
    *,
    platform: Platform = "cuda",
    own_flags: tuple[str, ...] = (),
    space: Space | None = None,
) -> EngineSpec:
    """Check the user's flags against the engine's own, and give `spec` what decides how a setting is read.

    Without a `space` nothing is searched, and HiCache's own flags may be given for the one launch.
    """
    checked = check_arguments(arguments, table, searched=space is not None)
    if space is not None:
        _check_space(space, table)
    flags = (*own_flags, *checked.arguments)
    config = read_model_config(spec.model)
    around = Surroundings(
        version=number_of(spec.sglang_version),
        platform=platform,
        fixed={**spec.around.fixed, **{given.name: given.value for given in split_arguments(flags)}},
        defaults={flag.name: flag.default for flag in table.flags if flag.default is not None},
        architecture=architecture(config),
        uses_mla="kv_lora_rank" in text_config(config) if config else None,
    )
    tier = StorageTier(Path(tempfile.gettempdir()), around)
    if space is None and tier.serves(Setting(hicache=True)):
        tier.check_room()
    return replace(spec, base_flags=flags, around=around, config=config, warnings=checked.warnings)


def _check_space(space: Space, table: FlagTable) -> None:
    """Raise ConfigError for a searched flag or value that the engine does not have."""
    for dimension in space.dimensions:
        if dimension.name not in Setting.model_fields and dimension.name != "transfer":
            for value in dimension.ends:
                check_flag(dimension.name, value, table, where=f"--search {dimension.name}={dimension.values_text}")
