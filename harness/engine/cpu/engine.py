"""The installed CPU engine: where it is, and what every launch of it needs."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import platformdirs

from harness.errors import EngineMissing
from harness.files import write_atomically
from scenarios.strict import StrictModel

SGLANG_VERSION = "0.5.15"
HOME_VARIABLE = "HICACHE_TUNE_CPU_ENGINE_HOME"
INSTALL_COMMAND = "hicache-tune engine install-cpu"

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
MODEL_SCRIPT = HERE / "model.py"
WORDS = Path(str(resources.files("scenarios") / "words_en.txt"))

DEFAULT_DEVICE_MIB = 112
"""Size of the virtual device: the weights fill 74 MiB, and SGLang's default fraction of 0.88 leaves 6,282
tokens of KV, so that a dozen chat sessions overflow it, as they overflow a real GPU."""

HOST_RESERVE_BYTES = 1 << 30
"""Host memory that the shim makes SGLang keep free, in place of 10 GiB, which many a machine without a GPU has not."""

BASE_FLAGS = (
    *("--device", "cpu"),
    *("--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch"),
    *("--grammar-backend", "none"),
    *("--dtype", "float32"),
    *("--context-length", "8192"),
    *("--chunked-prefill-size", "2048"),
    "--disable-overlap-schedule",
    "--enable-metrics",
    "--enable-cache-report",
)
"""What each launch on CPU needs, without anything that is tuned."""


@dataclass(frozen=True)
class CpuEngine:
    """An installed CPU engine, ready to be launched with `python -m sglang.launch_server`."""

    python: Path
    model_path: Path
    sglang_version: str
    torch_version: str
    base_flags: tuple[str, ...] = BASE_FLAGS

    def env(self, *, copy_gb_per_s: float | None = None, device_mib: int = DEFAULT_DEVICE_MIB) -> dict[str, str]:
        """Return the variables to add to a launch's environment.

        `copy_gb_per_s` (1e9 bytes a second) limits each copy between device and host pool, off by default;
        `device_mib` is the size of the virtual device that `--mem-fraction-static` divides.
        """
        limit = {} if copy_gb_per_s is None else {"HICACHE_TUNE_CPU_COPY_GB_PER_S": str(copy_gb_per_s)}
        return {
            "PYTHONPATH": str(HERE / "shim"),
            "HICACHE_TUNE_CPU_SHIM": "1",
            "HICACHE_TUNE_CPU_DEVICE_MIB": str(device_mib),
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
            **limit,
        }


class Installed(StrictModel):
    """What an installation has finished: the fingerprints of its recipes, and the versions that it got."""

    packages: str
    model: str
    torch_version: str


def default_home() -> Path:
    """Return the folder of the CPU engine: HICACHE_TUNE_CPU_ENGINE_HOME, or one in the user's data folder."""
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).expanduser()
    return platformdirs.user_data_path("hicache-tune") / f"engine-cpu-{SGLANG_VERSION}"


def find(home: Path | None = None) -> CpuEngine:
    """Return the installed engine; raise EngineMissing, with what to run, when it is absent or stale."""
    home = (home or default_home()).absolute()
    done = finished(home)
    python = python_of(home)
    if done is None or not python.exists():
        raise EngineMissing(f"the CPU engine is not installed in {home}; run `{INSTALL_COMMAND}`")
    if (done.packages, done.model) != (packages_fingerprint(), model_fingerprint()):
        raise EngineMissing(f"the CPU engine in {home} is not of this version; run `{INSTALL_COMMAND}`")
    return CpuEngine(python, model_of(home), SGLANG_VERSION, done.torch_version)


def python_of(home: Path) -> Path:
    """Return the engine's Python."""
    return home / "venv" / "bin" / "python"


def model_of(home: Path) -> Path:
    """Return the folder of the model."""
    return home / "model"


def finished(home: Path) -> Installed | None:
    """Read what the installation in `home` has finished; None when nothing, or when that cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return Installed.model_validate_json((home / "installed.json").read_text(encoding="utf-8"))
    return None


def record(home: Path, done: Installed) -> None:
    """Write what the installation in `home` has finished, so that a reader sees all of it or nothing."""
    write_atomically(home / "installed.json", done.model_dump_json())


def packages_fingerprint() -> str:
    """Identify what is to be installed."""
    return _fingerprint(REQUIREMENTS)


def model_fingerprint() -> str:
    """Identify the recipe of the model, which needs the packages of this version."""
    return _fingerprint(MODEL_SCRIPT, WORDS)


def _fingerprint(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
