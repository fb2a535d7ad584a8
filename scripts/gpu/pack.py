"""Pack engine, harness and a model for a GPU host that can reach no registry: `python -m scripts.gpu.pack FOLDER`.

Makes engine.tar.xz (only when it is not there yet), harness.tar.xz and model/ in FOLDER. The host brings Python,
torch with CUDA, and the large packages of HOST_HAS; everything else travels. Needs 1.5 GB of space, and the network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from scripts.gpu.model import write_model

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PYTHON_VERSION = "3.12"
GLIBC = ("2_39", "2_36", "2_35", "2_34", "2_31", "2_28", "2_27", "2_24", "2_17", "2_12", "2_5")
PLATFORMS = (*(f"manylinux_{v}_x86_64" for v in GLIBC), *(f"manylinux{v}_x86_64" for v in ("2014", "2010", "1")))

HOST_HAS = ("numpy", "pandas", "scipy", "pyarrow", "tokenizers", "huggingface_hub", "hf_xet", "fsspec", "pytest")
"""Distributions of the harness that the host must have in our version ranges; window.py checks that at its start."""
LEFT_OUT = (
    "sgl_kernel/flash_ops*",  # FA3: 1.7 GB unpacked; the triton backend needs none of it
    "sgl_kernel/sm100/*",
    "sgl_kernel/flashmla_ops*",
    "deep_gemm/*",
    "sglang/multimodal_gen/*",
    "zstandard/_cffi*",
    "plotly/labextension/*",
    "*.data/*",
)
LEFT_OUT_OF_HARNESS = (
    *("*/tests/*", "*.c", "*.cpp", "*.h", "*.hpp", "*.pyx", "*.pxd", "*.pyi"),
    *("locust/webui/*", "plotly/package_data/widgetbundle.js", "plotly/package_data/datasets/*"),
    *("harness/*", "scenarios/*", "tuning/*", "dashboards/*"),  # of the project only its metadata: the checkout travels
)
"""Not of the engine, which compiles kernels from sources on the host."""
PINNED_BY_TRANSFORMERS = "tokenizers>=0.22.0,<=0.23.0"


def main() -> None:
    """Pack into the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "engine.tar.xz").exists():
        pack_engine(folder / "engine.tar.xz")
    pack_harness(folder / "harness.tar.xz")
    write_model(folder / "model")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sys.stdout.write(f"{path.stat().st_size / 2**20:8.1f} MiB  {path.relative_to(folder)}\n")


def pack_engine(archive: Path) -> None:
    """Pack the wheels of engine.txt."""
    with tempfile.TemporaryDirectory() as scratch:
        wheels, site = Path(scratch, "wheels"), Path(scratch, "site")
        download(wheels, "--no-deps", "-r", str(HERE / "engine.txt"))
        unpack(sorted(wheels.glob("*.whl")), site, LEFT_OUT)
        shutil.copy(HERE / "engine_site" / "sitecustomize.py", site)
        pins = site / "transformers" / "dependency_versions_table.py"
        text = pins.read_text(encoding="utf-8")
        pins.write_text(text.replace(PINNED_BY_TRANSFORMERS, "tokenizers>=0.22.0"), encoding="utf-8")
        compress(site, archive)


def pack_harness(archive: Path) -> None:
    """Pack what pyproject.toml asks for and the host lacks; the harness itself runs from the checkout beside it."""
    with tempfile.TemporaryDirectory() as scratch:
        wheels, site, own = Path(scratch, "wheels"), Path(scratch, "site"), Path(scratch, "own")
        pip("wheel", "--no-deps", "--wheel-dir", str(own), str(REPOSITORY))
        (project,) = own.glob("*.whl")
        download(wheels, str(project))
        carried = [wheel for wheel in sorted(wheels.glob("*.whl")) if distribution(wheel) not in HOST_HAS]
        unpack(carried, site, LEFT_OUT + LEFT_OUT_OF_HARNESS)
        strip(site, carried)
        compress(site, archive)


def download(folder: Path, *what: str) -> None:
    """Download wheels for the host's Python and system, not for this one's."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    target = ["--only-binary=:all:", "--python-version", PYTHON_VERSION, "--implementation", "cp", *platforms]
    pip("download", *target, "--dest", str(folder), *what)


def pip(*arguments: str) -> None:
    """Run pip of this Python."""
    subprocess.run([sys.executable, "-m", "pip", "-qq", *arguments], check=True)


def distribution(wheel: Path) -> str:
    """Return the name of a wheel's distribution, normalised as wheels are."""
    return wheel.name.partition("-")[0].lower()


def unpack(wheels: Iterable[Path], site: Path, left_out: Iterable[str]) -> None:
    """Unpack `wheels` into one folder, without the members that match a pattern of `left_out`."""
    patterns = tuple(left_out)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if not any(fnmatch(name, pattern) for pattern in patterns)]
            archive.extractall(site, names)


def strip(site: Path, wheels: Iterable[Path]) -> None:
    """Drop debug symbols, half of what compiled packages weigh; where there is no `strip`, they travel.

    Wheels that bring libraries in a .libs folder were patched to find them, which `strip` may break.
    """
    program = shutil.which("strip")
    members = [zipfile.ZipFile(wheel).namelist() for wheel in wheels]
    plain = [name for names in members if not any(".libs/" in name for name in names) for name in names]
    libraries = [str(site / name) for name in plain if name.endswith(".so") and (site / name).exists()]
    if program and libraries:
        subprocess.run([program, "--strip-debug", *libraries], check=True)


def compress(site: Path, archive: Path) -> None:
    """Write `site` as a tar.xz that appears only when it is whole."""
    partial = archive.with_suffix(".part")
    subprocess.run(
        [shutil.which("tar") or "tar", "-C", str(site), "-I", "xz -T0 -9", "-cf", str(partial), "."], check=True
    )
    partial.replace(archive)


if __name__ == "__main__":
    main()
