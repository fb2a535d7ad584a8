"""What a Docker image has, asked through the fake Docker client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.engine.docker import Image
from harness.engine.flag_source import SHIPPED
from harness.engine.image import hub_mount, read_image_flags
from harness.errors import ConfigError, EngineMissing
from tests.support import processes

FAKE_DOCKER = Path(processes.__file__).with_name("fake_docker.py")


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """Name an image of SGLang 0.5.15 whose client is `tests/support/fake_docker.py`."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_DOCKER} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("FAKE_DOCKER_HOME", str(tmp_path / "containers"))
    monkeypatch.setenv("FAKE_DOCKER_FLAGS", str(SHIPPED / "flags-0.5.15.json"))
    return Image("lmsysorg/sglang:v0.5.15", program=str(program))


def asked(tmp_path: Path) -> int:
    """Count the containers that were started."""
    return (tmp_path / "containers/commands").read_text().split().count("run")


def test_an_image_is_asked_once(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version and flags are kept by the id of its content, which a new image of the same name does not have."""
    monkeypatch.setenv("FAKE_DOCKER_IMAGE", "sha256:1")
    for _ in range(2):
        table = read_image_flags(image, cache=tmp_path / "cache")
        assert (table.sglang_version, table.exact) == ("0.5.15", True)
        assert table.find("hicache-ratio") is not None
    assert asked(tmp_path) == 1
    monkeypatch.setenv("FAKE_DOCKER_IMAGE", "sha256:2")
    read_image_flags(image, cache=tmp_path / "cache")
    assert asked(tmp_path) == 2


def test_an_image_without_sglang_is_named(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what Docker, or the program in it, said last; nothing is kept."""
    monkeypatch.setenv("FAKE_DOCKER_REFUSES", "1")
    with pytest.raises(EngineMissing, match=r"does not tell SGLang's flags \(docker: .*No such image\); name an image"):
        read_image_flags(image, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_no_docker_is_named() -> None:
    """Before anything else."""
    with pytest.raises(EngineMissing, match="no-docker: no such program; install Docker or use --engine local"):
        read_image_flags(Image("i", program="no-docker"))


def test_a_hub_model_must_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each container would fetch it again; one that is here is mounted where the hub's library looks for it."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="run `hf download Org/Name` first"):
        hub_mount("Org/Name")
    (tmp_path / "models--Org--Name").mkdir()
    assert hub_mount("Org/Name") == (tmp_path, "/root/.cache/huggingface/hub")
