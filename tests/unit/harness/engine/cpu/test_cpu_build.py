"""The steps of an installation, as far as they need neither network nor SGLang."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.engine.cpu import build, engine
from harness.errors import InstallError


class Usage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


def test_the_packages_are_the_pins_of_the_requirements() -> None:
    """Each line but comments is one package with its version, torch without a local one."""
    pins = [line for line in engine.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert build.package_count() == len(pins) == 73
    assert all("==" in pin for pin in pins)
    assert "torch==2.13.0" in pins
    assert f"sglang=={engine.SGLANG_VERSION}" in pins


def test_a_short_disk_is_seen_before_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 3 GB free stops the installation before anything is run."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**12, 10**12, 2_500_000_000))
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: pytest.fail("something was run"))
    with pytest.raises(InstallError, match=r"needs 3 GB and .* has 2\.5 GB free"):
        build.install_packages(tmp_path, None, lambda _got, _message: None)


def test_python_3_11_is_this_one_or_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Python looks for `python3.11`, and says so when there is none."""
    assert build.find_python((3, 11)) == sys.executable
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert build.find_python((3, 13)) == "/bin/python3.11"
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(InstallError, match=r"needs Python 3\.11, this is 3\.13 and there is no `python3\.11`"):
        build.find_python((3, 13))


def test_a_wheel_index_is_a_folder_or_an_index(tmp_path: Path) -> None:
    """A folder is searched for wheels; anything else is a further index."""
    assert build.index_options(None) == []
    assert build.index_options(str(tmp_path)) == ["--find-links", str(tmp_path)]
    assert build.index_options("https://wheels.example/cpu") == [
        "--extra-index-url",
        "https://wheels.example/cpu",
    ]


@pytest.mark.parametrize(
    ("cuda", "message"),
    [
        ("'13.0'", "only the CUDA build of torch"),
        ("None", r"cannot be imported; remove .* \(ImportError: no\)"),
    ],
)
def test_an_engine_that_cannot_be_imported_says_why(tmp_path: Path, cuda: str, message: str) -> None:
    """A CUDA build of torch, which lacks its libraries here, is told from other faults."""
    torch = tmp_path / "venv/lib/python3.11/site-packages/torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\n")
    fake_python(tmp_path, "echo 'ImportError: no' >&2; exit 1")
    with pytest.raises(InstallError, match=message):
        build.check_imports(tmp_path)


def test_the_versions_are_the_last_line_of_the_check(tmp_path: Path) -> None:
    """Whatever SGLang prints while it is imported does not matter."""
    fake_python(tmp_path, """echo warning; echo '{"sglang": "0.5.15", "torch": "2.13.0+cpu"}'""")
    assert build.check_imports(tmp_path) == {"sglang": "0.5.15", "torch": "2.13.0+cpu"}


def test_a_model_appears_whole(tmp_path: Path) -> None:
    """The model is made beside its place and then moved there; what was there before is replaced."""
    fake_python(tmp_path, 'mkdir "$3"; echo new > "$3/config.json"')
    engine.model_of(tmp_path).mkdir()
    (engine.model_of(tmp_path) / "old").touch()
    build.make_model(tmp_path)
    assert [file.name for file in engine.model_of(tmp_path).iterdir()] == ["config.json"]


def test_a_model_that_fails_is_an_error(tmp_path: Path) -> None:
    """The last line of the script is in the message, and no half model is left in its place."""
    fake_python(tmp_path, 'mkdir "$3"; echo "OSError: no space" >&2; exit 1')
    with pytest.raises(InstallError, match="OSError: no space"):
        build.make_model(tmp_path)
    assert not engine.model_of(tmp_path).exists()


def fake_python(home: Path, script: str) -> None:
    """Put a shell script in the place of the engine's Python."""
    python = engine.python_of(home)
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
