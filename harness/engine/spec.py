"""Which engine is launched, apart from the setting: its Python, model, fixed flags, environment and limits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.engine.setting import Setting
from harness.errors import EngineMissing

MEASURING_FLAGS = ("--enable-metrics", "--enable-cache-report")
"""Without these the engine says nothing of its caches."""
ASK_S = 60.0
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
    host: str = "127.0.0.1"
    engine_cpus: tuple[int, ...] = ()
    """Cores that the engine is pinned to once it is ready; empty leaves it to the system."""
    load_cpus: tuple[int, ...] = ()
    copy_gb_per_s: float | None = None
    """Artificial limit of host copies on the CPU engine; recorded, because it changes what is measured."""
    host_reserve_bytes: int = SGLANG_RESERVE_BYTES
    """Host memory that this SGLang keeps free."""
    ready: ReadyLimits = ReadyLimits()

    def argv(self, setting: Setting, port: int) -> list[str]:
        """Build the launch command of `setting`: a list, never a shell string."""
        fixed = [flag for flag in MEASURING_FLAGS if flag not in self.base_flags]
        tensor_parallel = ["--tp-size", str(self.tp_size)] if self.tp_size > 1 else []
        address = ["--host", self.host, "--port", str(port)]
        head = [str(self.python), "-m", "sglang.launch_server", "--model-path", self.model]
        return [*head, *address, *fixed, *tensor_parallel, *self.base_flags, *setting.flags()]


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
