"""Where things lie on the GPU host, and how they get there from what was carried in."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
KERNELS = "kernels.tar.xz"
MARK = ".unpacked-from"

ENGINE_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "SGLANG_ENABLE_JIT_DEEPGEMM": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "",
}
IMPORTED_FROM_HOST = ("torch", "torchvision", "triton", "numpy", "scipy", "pandas", "pyarrow", "huggingface_hub", "PIL")
COMPILE_LIMIT_S = 60
"""Not compiling is slow, and no fault."""


@dataclass(frozen=True)
class Host:
    """The folder of a GPU host that holds all that was unpacked. Its place never changes: a study records it."""

    root: Path

    @property
    def engine_site(self) -> Path:
        """Packages of the engine, which the harness never sees."""
        return self.root / "engine"

    @property
    def harness_site(self) -> Path:
        """Packages of the harness, which the engine never sees."""
        return self.root / "harness"

    @property
    def model(self) -> Path:
        """The model folder."""
        return self.root / "model"

    @property
    def engine_home(self) -> Path:
        """The engine's home folder: whatever kernels it compiles lie below it."""
        return self.root / "home"

    @property
    def engine_python(self) -> Path:
        """A program that is this Python with the engine's packages."""
        return self.root / "engine-python"

    def unpack(self, bundle: Path) -> None:
        """Unpack what `scripts.gpu.pack` made and an earlier window brought out, as far as it is not here yet."""
        self.root.mkdir(parents=True, exist_ok=True)
        sites = {"engine.tar.xz": self.engine_site, "harness.tar.xz": self.harness_site}
        fresh = {bundle / name: site for name, site in sites.items() if is_news(bundle / name, site)}
        if (bundle / KERNELS).exists() and not self.engine_home.exists():
            fresh[bundle / KERNELS] = self.engine_home
        unpack_all(fresh)
        if absent := [name for name, site in sites.items() if not site.exists()]:
            raise SystemExit(f"{bundle} has no {' and no '.join(absent)}; make it by `python -m scripts.gpu.pack`")
        self.engine_home.mkdir(exist_ok=True)
        if (bundle / "model").exists():
            shutil.copytree(bundle / "model", self.model, dirs_exist_ok=True)
        self._write_engine_python()
        if fresh:
            compile_modules([*sites.values(), *(Path(sysconfig.get_path("purelib"), n) for n in IMPORTED_FROM_HOST)])

    def harness_variables(self) -> dict[str, str]:
        """Return the environment in which this checkout runs with the harness's packages."""
        return {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{self.harness_site}"}

    def _write_engine_python(self) -> None:
        caches = self.engine_home / ".cache"
        variables = {
            **ENGINE_VARIABLES,
            "HOME": self.engine_home,
            "XDG_CACHE_HOME": caches,
            "TRITON_CACHE_DIR": caches / "triton",
            "PYTHONPATH": self.engine_site,
            "TORCHINDUCTOR_CACHE_DIR": caches / "inductor",
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        }
        exports = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in variables.items())
        self.engine_python.write_text(f'#!/bin/sh\n{exports}exec {shlex.quote(sys.executable)} "$@"\n')
        self.engine_python.chmod(0o755)


def is_news(archive: Path, site: Path) -> bool:
    """Whether `archive` was carried in and is another one than `site` was unpacked from."""
    mark = site / MARK
    return archive.exists() and not (mark.exists() and mark.read_text() == digest(archive))


def unpack_all(archives: Mapping[Path, Path]) -> None:
    """Unpack archives side by side, each to a folder that appears only when it is whole."""
    tar = shutil.which("tar") or "tar"
    jobs = []
    for archive, folder in archives.items():
        partial = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        jobs.append((archive, partial, folder, subprocess.Popen([tar, "-C", str(partial), "-xJf", str(archive)])))
    if damaged := [str(archive) for archive, _, _, job in jobs if job.wait()]:
        raise SystemExit(f"{', '.join(damaged)}: cannot be unpacked; carry it in again")
    for archive, partial, folder, _ in jobs:
        (partial / MARK).write_text(digest(archive))
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)


def compile_modules(folders: Iterable[Path]) -> None:
    """Compile Python modules once, which every process of every launch would else do for itself, 10 s each."""
    present = [str(folder) for folder in folders if folder.exists()]
    command = [sys.executable, "-W", "ignore", "-m", "compileall", "-qq", "-j", "0", *present]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, check=False, timeout=COMPILE_LIMIT_S, stdout=subprocess.DEVNULL)


def digest(archive: Path) -> str:
    """Identify an archive by its content."""
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
