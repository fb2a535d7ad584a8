"""The steps that build the CPU engine in its folder: packages, model, check."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.engine.cpu.engine import (
    BASE_FLAGS,
    HERE,
    MODEL_SCRIPT,
    REQUIREMENTS,
    SGLANG_VERSION,
    WORDS,
    CpuEngine,
    model_of,
    python_of,
)
from harness.engine.cpu.pip import Report, run_pip
from harness.errors import InstallError

NEEDED_BYTES = 3_000_000_000
"""Free disk: 1.4 GB unpacked, and as much again for pip's downloads and cache with room to spare."""


def package_count() -> int:
    """Count the packages that are installed."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return sum(1 for line in lines if line and not line.startswith("#"))


def install_packages(home: Path, wheel_index: str | None, report: Report) -> None:
    """Make a fresh virtual environment in `home` and fill it; pip's cache keeps what it downloaded before."""
    check_disk(home)
    report(0, "making a virtual environment")
    made = _run([find_python(), "-m", "venv", "--clear", str(home / "venv")])
    if made.returncode != 0:
        raise InstallError(
            f"cannot make a virtual environment in {home}; on Debian install python3.11-venv ({_last(made)})"
        )
    options = ["--no-deps", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    argv = [str(python_of(home)), "-m", "pip", "install", *options, *index_options(wheel_index)]
    argv += ["-r", str(REQUIREMENTS)]
    run_pip(argv, env=_clean_environment(), log_path=home / "pip.log", report=report)


def make_model(home: Path) -> None:
    """Make the model and its tokenizer in `home`."""
    partial = home / "model.partial"
    for folder in (partial, model_of(home)):
        shutil.rmtree(folder, ignore_errors=True)
    offline = {**_clean_environment(), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    made = _run([str(python_of(home)), str(MODEL_SCRIPT), str(WORDS), str(partial)], offline)
    if made.returncode != 0:
        raise InstallError(f"the model cannot be made in {home}; free disk space and run again ({_last(made)})")
    partial.rename(model_of(home))


def check_imports(home: Path) -> dict[str, str]:
    """Import what a launch imports, in the engine's Python; return the versions of sglang and torch."""
    python = python_of(home)
    engine = CpuEngine(python, model_of(home), SGLANG_VERSION, "", BASE_FLAGS)
    seen = _run([str(python), str(HERE / "verify.py")], {**_clean_environment(), **engine.env()})
    if seen.returncode == 0:
        versions: dict[str, str] = json.loads(seen.stdout.splitlines()[-1])
        return versions
    if torch_is_for_cuda(home):
        raise InstallError(
            "pip found only the CUDA build of torch, which cannot run here; name PyTorch's index of CPU "
            "wheels with --wheel-index or HICACHE_TUNE_WHEEL_INDEX and run again"
        )
    raise InstallError(f"the installed engine cannot be imported; remove {home} and install again ({_last(seen)})")


def check_disk(home: Path) -> None:
    """Raise InstallError when the disk of `home` is too full for an installation."""
    free = shutil.disk_usage(home).free
    if free < NEEDED_BYTES:
        raise InstallError(
            f"the CPU engine needs {NEEDED_BYTES / 1e9:.0f} GB and {home} has {free / 1e9:.1f} GB free; free "
            "some, or name a folder on another disk with HICACHE_TUNE_CPU_ENGINE_HOME"
        )


def find_python(version: tuple[int, int] = sys.version_info[:2]) -> str:
    """Return a Python 3.11: this one, or `python3.11` on PATH."""
    found = sys.executable if version == (3, 11) else shutil.which("python3.11")
    if found is None:
        raise InstallError(
            f"SGLang {SGLANG_VERSION} on CPU needs Python 3.11, this is {version[0]}.{version[1]} and "
            "there is no `python3.11` on PATH; install one"
        )
    return found


def index_options(wheel_index: str | None) -> list[str]:
    """Turn another source of wheels, a folder or an index, into pip's options."""
    if not wheel_index:
        return []
    return ["--find-links" if Path(wheel_index).is_dir() else "--extra-index-url", wheel_index]


def torch_is_for_cuda(home: Path) -> bool:
    """Whether the installed torch was built for CUDA, read from its files because it cannot be imported."""
    written = [file.read_text() for file in home.glob("venv/lib/python*/site-packages/torch/version.py")]
    return any(
        line.startswith("cuda") and "None" not in line.rpartition("=")[2] for line in "".join(written).splitlines()
    )


def _run(argv: Sequence[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, env=env or _clean_environment(), capture_output=True, text=True)


def _clean_environment() -> dict[str, str]:
    # What this process imports from must not leak into the engine's environment.
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _last(run: subprocess.CompletedProcess[str]) -> str:
    lines = (run.stderr.strip() or run.stdout.strip() or f"exit code {run.returncode}").splitlines()
    return lines[-1]
