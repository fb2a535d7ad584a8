"""The flags that say for which machine a load is analysed, and what follows from them without a GPU."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from harness.engine.memory import DeviceRoom, kv_bytes_of_rank, kv_pool_bytes, static_fraction
from harness.engine.model_shape import architecture, read_model_config, text_config, weight_bytes
from harness.engine.preflight import HOST_KEEP_FREE, check_model
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.surroundings import Surroundings
from scenarios.analysis import DEFAULT_COPY_GB_PER_S, HostPool, Machine
from scenarios.errors import ConfigError

MACHINE = Group("For which machine", sort_key=2)
ABOVE_0, SHARE = Number(gt=0), Number(gt=0, lt=1)
GIB = 2**30
MOST_POOLS = 50
"""More are no table for people."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """What the cache sizes are compared with."""

    model: Annotated[
        str | None,
        Parameter(group=MACHINE, help="Model folder: bytes of a token, weights, and the tokenizer for text."),
    ] = None
    device_kv_tokens: Annotated[
        int | None,
        Parameter(group=MACHINE, validator=ABOVE_0, help="KV pool of the GPU (`max_total_num_tokens` of a launch)."),
    ] = None
    gpu_memory_gib: Annotated[
        float | None,
        Parameter(group=MACHINE, validator=ABOVE_0, help="Memory of one GPU, to estimate its KV pool from the model."),
    ] = None
    mem_fraction_static: Annotated[
        float | None,
        Parameter(group=MACHINE, validator=SHARE, help="Share for weights and KV pool; by default what SGLang takes."),
    ] = None
    weights_gib: Annotated[
        float | None,
        Parameter(group=MACHINE, validator=ABOVE_0, help="Weights of the model; by default those of --model."),
    ] = None
    kv_bytes_per_token: Annotated[
        int | None,
        Parameter(group=MACHINE, validator=ABOVE_0, help="Bytes of a token's KV over all GPUs, in place of --model."),
    ] = None
    tp_size: Annotated[
        int, Parameter(group=MACHINE, validator=Number(gte=1), help="GPUs that the model is split over.")
    ] = 1
    hicache_size: Annotated[
        str | None,
        Parameter(group=MACHINE, help="Host pools to look at, as 8,16,32 or 8:64:8; GB of each rank."),
    ] = None
    host_memory_gib: Annotated[
        float | None,
        Parameter(group=MACHINE, validator=ABOVE_0, help="Memory of the host: no pool over 80 % of it is proposed."),
    ] = None
    hicache_write_policy: Annotated[
        Literal["write_through", "write_through_selective", "write_back"],
        Parameter(group=MACHINE, help="With write_back the two pools hold different KV."),
    ] = "write_through"
    pcie_gbps: Annotated[
        float, Parameter(group=MACHINE, validator=ABOVE_0, help="GB/s that a GPU copies from host memory.")
    ] = DEFAULT_COPY_GB_PER_S
    prefill_tokens_per_s: Annotated[
        float | None,
        Parameter(group=MACHINE, validator=ABOVE_0, help="What the engine computes, for the seconds that are saved."),
    ] = None

    def machine(self) -> Machine:
        """Resolve the flags; raise ConfigError that names what is missing or wrong."""
        if self.model is not None:
            check_model(self.model)
        spec = self._spec()
        rank_bytes = self._rank_bytes(spec)
        machine = Machine(
            device_tokens=self.device_kv_tokens or self._estimated_device_tokens(spec, rank_bytes),
            kv_bytes_per_token=rank_bytes,
            copy_gb_per_s=self.pcie_gbps,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
            host_gb_limit=self._host_gb_limit(),
            inclusive=self.hicache_write_policy != "write_back",
        )
        return replace(machine, host_pools=tuple(self._pool(machine, size) for size in self._sizes()))

    def _spec(self) -> EngineSpec:
        """Describe the engine as far as memory goes."""
        config = read_model_config(self.model) if self.model else {}
        around = Surroundings(architecture=architecture(config), uses_mla="kv_lora_rank" in text_config(config))
        return EngineSpec(
            python=Path(sys.executable),
            model=self.model or "",
            sglang_version=".".join(map(str, around.version)),
            tp_size=self.tp_size,
            around=around,
            config=config,
        )

    def _rank_bytes(self, spec: EngineSpec) -> int | None:
        """Bytes of a token on one rank: KV heads are spread over the ranks, a latent is on each of them whole."""
        if self.kv_bytes_per_token is None:
            return kv_bytes_of_rank(Setting(), spec)
        return self.kv_bytes_per_token if spec.around.uses_mla else self.kv_bytes_per_token // self.tp_size

    def _estimated_device_tokens(self, spec: EngineSpec, rank_bytes: int | None) -> int | None:
        if self.gpu_memory_gib is None:
            return None
        whole = self.weights_gib * GIB if self.weights_gib else weight_bytes(spec.model, spec.config, dtype="auto")
        if not rank_bytes or not whole:
            missing = "--model, a folder with config.json" if not rank_bytes else "--weights-gib"
            raise ConfigError(
                f"--gpu-memory-gib alone says nothing of the KV pool; add {missing}, or --device-kv-tokens"
            )
        room, weights = DeviceRoom(*2 * [round(self.gpu_memory_gib * GIB)]), round(whole / self.tp_size)
        share = static_fraction(Setting(mem_fraction_static=self.mem_fraction_static), spec, room) or 0.0
        tokens = kv_pool_bytes(room, share, weights) // rank_bytes
        if not tokens:
            raise ConfigError(
                f"{self.gpu_memory_gib:g} GiB x {share:g} leave no KV pool beside weights of "
                f"{weights / GIB:.1f} GiB; correct --gpu-memory-gib, --mem-fraction-static or --tp-size"
            )
        return tokens

    def _host_gb_limit(self) -> float | None:
        if self.host_memory_gib is None:
            return None
        return self.host_memory_gib * GIB * (1 - HOST_KEEP_FREE) / 1e9 / self.tp_size

    def _sizes(self) -> list[int]:
        text = self.hicache_size
        if text is None:
            return []
        if re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
            return sorted({int(size) for size in text.split(",")})
        steps = re.fullmatch(r"([1-9]\d*):([1-9]\d*)(?::([1-9]\d*))?", text)
        if steps is None:
            raise ConfigError(f"--hicache-size {text}: write whole GB, as 8,16,32 or LOW:HIGH[:STEP]")
        low, high, step = (int(number) for number in steps.groups("1"))
        sizes = list(range(low, high + 1, step))
        if not 0 < len(sizes) <= MOST_POOLS:
            raise ConfigError(f"--hicache-size {text}: this is {len(sizes)} sizes; ask for 1 to {MOST_POOLS}")
        return sizes

    def _pool(self, machine: Machine, size_gb: int) -> HostPool:
        if machine.device_tokens is None:
            raise ConfigError(
                "--hicache-size needs the KV pool that it stands behind; add --device-kv-tokens, or --gpu-memory-gib"
            )
        if machine.kv_bytes_per_token is None:
            raise ConfigError("--hicache-size needs the bytes of a token; add --model, or --kv-bytes-per-token")
        return machine.sized(size_gb)
