"""Unpacking on the GPU host: two sets of packages that never meet, and archives that are unpacked once."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from harness.engine.spec import find_local_engine
from scripts.gpu import host as host_module
from scripts.gpu.host import ENGINE_VARIABLES, Host


@pytest.fixture(autouse=True)
def _compile_only_what_is_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "IMPORTED_FROM_HOST", ())


def pack(bundle: Path, name: str, files: dict[str, str]) -> None:
    """Make the archive `name` of a bundle with `files`."""
    bundle.mkdir(exist_ok=True)
    site = bundle.parent / f"content-of-{name}"
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    with tarfile.open(bundle / name, "w:xz") as tar:
        tar.add(site, arcname=".")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle whose engine is nothing but SGLang's metadata."""
    folder = tmp_path / "bundle"
    metadata = "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.15\n"
    pack(folder, "engine.tar.xz", {"sglang-0.5.15.dist-info/METADATA": metadata, "of_engine.py": "x = 1\n"})
    pack(folder, "harness.tar.xz", {"of_harness.py": "x = 1\n"})
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    return folder


def ask(python: Path, question: str) -> str:
    """Run one line in the engine's Python."""
    return subprocess.run([python, "-c", question], capture_output=True, text=True, check=True).stdout.strip()


def test_engine_python_is_found_as_a_local_engine(tmp_path: Path, bundle: Path) -> None:
    """`--engine-python` takes the wrapper, and the version is the carried one's."""
    host = Host(tmp_path / "host with a space")
    host.unpack(bundle)
    assert find_local_engine(host.engine_python) == (host.engine_python, "0.5.15")


def test_engine_never_sees_packages_of_the_harness(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrapper replaces PYTHONPATH, which the harness sets for itself and every child inherits."""
    host = Host(tmp_path / "host")
    host.unpack(bundle)
    monkeypatch.setenv("PYTHONPATH", host.harness_variables()["PYTHONPATH"])
    find = "import importlib.util as u; print([u.find_spec(n) is not None for n in ('of_engine', 'of_harness')])"
    assert ask(host.engine_python, find) == "[True, False]"


def test_engine_compiles_into_a_home_of_its_own(tmp_path: Path, bundle: Path) -> None:
    """All kernel caches follow from HOME, so one folder is all there is to bring out."""
    host = Host(tmp_path / "host")
    host.unpack(bundle)
    assert ask(host.engine_python, "from pathlib import Path; print(Path.home())") == str(host.engine_home)
    names = list(ENGINE_VARIABLES)
    assert ask(host.engine_python, f"import os; print([os.environ[n] for n in {names}])") == str(
        list(ENGINE_VARIABLES.values())
    )


def test_second_window_of_a_warm_host_needs_no_bundle(tmp_path: Path, bundle: Path) -> None:
    """What lies there stays, also when nothing is carried in."""
    host = Host(tmp_path / "host")
    host.unpack(bundle)
    (host.engine_site / "compiled-there").touch()
    host.unpack(bundle)
    host.unpack(tmp_path / "nothing-carried")
    assert (host.engine_site / "compiled-there").exists()
    assert (host.model / "config.json").exists()


def test_another_archive_replaces_what_was_unpacked(tmp_path: Path, bundle: Path) -> None:
    """A harness that was packed again takes the place of the old one, whole."""
    host = Host(tmp_path / "host")
    host.unpack(bundle)
    (tmp_path / "content-of-harness.tar.xz" / "of_harness.py").unlink()
    pack(bundle, "harness.tar.xz", {"newer.py": "x = 2\n"})
    host.unpack(bundle)
    assert (host.harness_site / "newer.py").exists()
    assert not (host.harness_site / "of_harness.py").exists()


def test_compiled_kernels_are_restored_on_a_fresh_host_only(tmp_path: Path, bundle: Path) -> None:
    """Kernels that a warm host has compiled since are newer than those carried in."""
    pack(bundle, "kernels.tar.xz", {".triton/cache/kernel": "old"})
    host = Host(tmp_path / "host")
    host.unpack(bundle)
    assert (host.engine_home / ".triton/cache/kernel").read_text() == "old"
    (host.engine_home / ".triton/cache/kernel").write_text("new")
    host.unpack(bundle)
    assert (host.engine_home / ".triton/cache/kernel").read_text() == "new"


def test_missing_archive_is_named(tmp_path: Path) -> None:
    """A fresh host without the bundle ends at once, and says what to do."""
    with pytest.raises(SystemExit, match=r"no engine\.tar\.xz and no harness\.tar\.xz; make it by"):
        Host(tmp_path / "host").unpack(tmp_path)


def test_damaged_archive_leaves_nothing_half_unpacked(tmp_path: Path, bundle: Path) -> None:
    """A transfer that broke off is named, and the next window unpacks again."""
    archive = bundle / "engine.tar.xz"
    archive.write_bytes(archive.read_bytes()[:-40])
    host = Host(tmp_path / "host")
    with pytest.raises(SystemExit, match="cannot be unpacked"):
        host.unpack(bundle)
    assert not host.engine_site.exists()
