"""What can be known before a second is spent on a launch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.engine.failure import Failure, FailureKind, LaunchFailed
from harness.engine.setting import DEFAULT_RATIO, Setting
from harness.engine.spec import SGLANG_RESERVE_BYTES, EngineSpec
from harness.errors import ConfigError, Interrupted

BUSY_LIMIT_S = 60.0
"""How long memory that others hold is waited for: the engine of the last trial may still be giving its own back."""
HOST_KEEP_FREE = 0.2
"""Share of the host's memory that we leave free whatever SGLang allows (safety rule of design.md)."""
DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class HostRoom:
    """Host memory that a launch can count on, in bytes."""

    available_bytes: int
    total_bytes: int
    reserve_bytes: int = SGLANG_RESERVE_BYTES
    """What SGLang keeps free: it refuses a pool that is larger than what is available less this."""

    @property
    def for_host_pool_bytes(self) -> int:
        """The largest host pool, over all ranks, that keeps 20 % and SGLang's own reserve free."""
        return max(0, self.available_bytes - self._keep_bytes)

    @property
    def when_idle_bytes(self) -> int:
        """The largest host pool if nothing else held memory."""
        return max(0, self.total_bytes - self._keep_bytes)

    @property
    def _keep_bytes(self) -> int:
        return max(int(HOST_KEEP_FREE * self.total_bytes), self.reserve_bytes)


def check_host_pool(
    setting: Setting,
    spec: EngineSpec,
    read_room: Callable[[], HostRoom],
    *,
    device_pool_bytes: int | None,
    should_stop: Callable[[], bool] = lambda: False,
    busy_limit_s: float = BUSY_LIMIT_S,
) -> None:
    """Raise LaunchFailed when the host pool of `setting` cannot fit; unknown sizes pass.

    `device_pool_bytes` is the largest KV pool seen so far over all ranks, from which a ratio's size follows. A pool
    that would fit if others did not hold memory is waited for, and then is not the setting's fault.
    """
    needed = host_pool_bytes(setting, spec.tp_size, device_pool_bytes=device_pool_bytes)
    if not needed:
        return
    deadline = time.monotonic() + busy_limit_s
    while needed > (room := read_room()).for_host_pool_bytes:
        said = (
            f"a host pool of {needed / 1e9:.1f} GB over {spec.tp_size} rank(s) does not fit: "
            f"{room.for_host_pool_bytes / 1e9:.1f} GB of {room.total_bytes / 1e9:.1f} GB can be given away "
            "with 20 % kept free; nothing was launched"
        )
        if needed > room.when_idle_bytes:
            raise LaunchFailed(Failure(FailureKind.HOST_MEMORY_REFUSED, said, None))
        if should_stop():
            raise Interrupted
        if time.monotonic() > deadline:
            raise LaunchFailed(Failure(FailureKind.HOST_MEMORY_BUSY, said, None))
        time.sleep(1.0)


def host_pool_bytes(setting: Setting, ranks: int, *, device_pool_bytes: int | None) -> int | None:
    """Predict the host memory that the pool takes over all ranks; None when it is not known yet."""
    if not setting.hicache:
        return 0
    if setting.hicache_size is not None:
        return int(setting.hicache_size * 1e9) * ranks
    if device_pool_bytes is None:
        return None
    return int((setting.hicache_ratio or DEFAULT_RATIO) * device_pool_bytes)


def kv_bytes_per_token(config: dict[str, Any], dtype: str | None = None) -> int | None:
    """Compute the KV bytes of one token over all ranks from a model's config.json (MHA and GQA); None if unknown.

    Formula: 2 (K and V) x layers x KV heads x head size x bytes of the dtype.
    """
    try:
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        kv_heads = config.get("num_key_value_heads") or heads
        layers = config["num_hidden_layers"]
        width = DTYPE_BYTES[dtype or config.get("torch_dtype") or config["dtype"]]
        if "kv_lora_rank" in config:  # MLA keeps a latent instead of heads
            return int(layers * (config["kv_lora_rank"] + config["qk_rope_head_dim"]) * width)
        return int(2 * layers * kv_heads * head_dim * width)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def check_model(model: str) -> None:
    """Raise ConfigError when `model` looks like a path and is not a model folder; hub names pass."""
    path = Path(model).expanduser()
    looks_local = model.startswith(("/", "./", "../", "~")) or path.exists()
    if not looks_local:
        return
    if not path.is_dir():
        raise ConfigError(
            f"--model {model}: no such folder; give a folder with config.json or a hub name like Org/Name"
        )
    if not (path / "config.json").is_file():
        raise ConfigError(f"--model {model}: no config.json in it; give the folder that holds the model's files")


def read_model_config(model: str) -> dict[str, Any]:
    """Read config.json of a local model folder; empty for a hub name."""
    path = Path(model).expanduser() / "config.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise ConfigError(f"{path}: cannot be read ({problem.strerror}); allow it or choose another --model") from None
    except (ValueError, TypeError) as problem:
        raise ConfigError(f"{path}: not a JSON object ({problem}); mend or download it again") from None
