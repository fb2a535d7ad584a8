"""Which engine is launched, apart from the setting: its Python, model, fixed flags, environment and limits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.engine.model_shape import kv_bytes_per_token
from harness.engine.setting import PLAIN, Setting
from harness.engine.surroundings import FlagValue, Surroundings
from harness.errors import EngineMissing

MEASURING_FLAGS = ("--enable-metrics", "--enable-cache-report")
"""Without these the engine says nothing of its caches."""
ASK_S = 60.0
PUBLIC_PORT = 30_000
"""The port that SGLang takes when none is given."""
SGLANG_RESERVE_BYTES = 10 * 2**30
"""Host memory that SGLang keeps free when it makes a host pool (`HICACHE_HOST_MEMORY_RESERVE_BYTES`)."""


@dataclass(frozen=True)
class ReadyLimits:
    """How long a launch may take, in seconds: without any new phase, and in all."""

    phase_s: float = 600.0
    total_s: float = 1800.0


@dataclass(frozen=True)
class EngineSpec:
    """Everything that two launches of one study share."""

    python: Path
    model: str
    sglang_version: str
    base_flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    device: str = "cuda"
    """`cuda` or `cpu`; the CPU engine makes no claim on transfer cost (design rule 14)."""
    tp_size: int = 1
    dp_size: int = 1
    around: Surroundings = PLAIN
    """What decides, besides a setting, what SGLang makes of its flags."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The model's config.json; empty when it is not at hand, as for a hub name."""
    here: bool = True
    """Whether it runs on this machine and is ours, so that memory is looked at before a launch."""
    near: bool = True
    """Whether this machine's memory is the engine's; not so when it is reached over a network."""
    warnings: tuple[str, ...] = ()
    """What the user should know of the flags before a search begins."""
    host: str = "127.0.0.1"
    port: int | None = None
    """The port of every launch; None takes one that is free."""
    engine_cpus: tuple[int, ...] = ()
    """Cores that the engine is pinned to once it is ready; empty leaves it to the system."""
    load_cpus: tuple[int, ...] = ()
    copy_gb_per_s: float | None = None
    """Artificial limit of host copies on the CPU engine; recorded, because it changes what is measured."""
    host_reserve_bytes: int = SGLANG_RESERVE_BYTES
    """Host memory that this SGLang keeps free."""
    ready: ReadyLimits = ReadyLimits()

    @property
    def dp_attention(self) -> bool:
        """Whether the copies of the attention share the GPUs of one tensor-parallel group."""
        return self.around.fixed.get("enable-dp-attention") is True

    @property
    def gpus(self) -> int:
        """How many GPUs a launch takes."""
        return self.tp_size if self.dp_attention else self.tp_size * self.dp_size

    @property
    def ranks(self) -> int:
        """How many processes make pools of their own, each of the size that is given: one on each GPU."""
        return self.gpus

    @property
    def attention_ranks(self) -> int:
        """Over how many GPUs the KV heads of one token are spread."""
        return max(1, self.tp_size // self.dp_size) if self.dp_attention else self.tp_size

    def canonical(self, setting: Setting) -> Setting:
        """Return the setting that this engine would really run."""
        return setting.canonical(self.around)

    def kv_bytes_per_token(self) -> int | None:
        """Return the KV bytes of one token over the GPUs that share it; None when the model does not tell."""
        return kv_bytes_per_token(
            self.config,
            self._fixed_text("dtype"),
            kv_dtype=self._fixed_text("kv-cache-dtype"),
            ranks=self.attention_ranks,
        )

    def _fixed_text(self, name: str) -> str:
        value: FlagValue | None = self.around.fixed.get(name)
        return "auto" if value is None else str(value)

    def argv(self, setting: Setting, port: int) -> list[str]:
        """Build the launch command of `setting`: a list, never a shell string."""
        spread = [
            word
            for flag, size in (("--tp-size", self.tp_size), ("--dp-size", self.dp_size))
            if size > 1
            for word in (flag, str(size))
        ]
        address = ["--host", self.host, "--port", str(port)]
        head = [str(self.python), "-m", "sglang.launch_server", "--model-path", self.model]
        return [*head, *address, *self._measuring_flags, *spread, *self.base_flags, *setting.flags()]

    @property
    def fixed_flags(self) -> tuple[str, ...]:
        """The flags of every launch, apart from those that say which model runs where."""
        return (*self._measuring_flags, *self.base_flags)

    @property
    def _measuring_flags(self) -> list[str]:
        return [flag for flag in MEASURING_FLAGS if flag not in self.base_flags]


def find_local_engine(python: Path | None = None) -> tuple[Path, str]:
    """Return the Python that has SGLang and SGLang's version; raise EngineMissing when there is none.

    Without `python` this process's own interpreter is asked, which the extra `hicache-tune[sglang]` provides for.
    """
    interpreter = python or Path(sys.executable)
    question = "import importlib.metadata as m; print(m.version('sglang'))"
    try:
        answer = subprocess.run([interpreter, "-c", question], capture_output=True, text=True, timeout=ASK_S)
    except OSError as problem:
        raise EngineMissing(
            f"--engine-python {interpreter}: {problem.strerror}; name a Python that has SGLang"
        ) from None
    except subprocess.TimeoutExpired:
        raise EngineMissing(f"--engine-python {interpreter}: no answer within {ASK_S:g} s; is it a Python?") from None
    if answer.returncode != 0:
        raise EngineMissing(
            f"SGLang is not installed for {interpreter}; install `hicache-tune[sglang]` on the GPU host, name another "
            "Python with --engine-python, or use --engine cpu on a machine without a GPU"
        )
    return interpreter, answer.stdout.strip()
