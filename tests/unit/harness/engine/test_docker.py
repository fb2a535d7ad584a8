"""An engine in a container: its command, its life and its end."""

from __future__ import annotations

import json
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.engine.docker import CONTAINER_FILE, Container, DockerEngine, DockerLauncher, Image, docker_argv
from harness.engine.handle import LaunchContext
from harness.engine.ledger import Ledger
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.errors import EngineMissing
from tests.support import processes
from tests.support.processes import alive, wait_for

SETTING = Setting(hicache=True, hicache_size=60)
ID_FILE = Path("/study/container.id")
UUIDS = ("GPU-1a", "GPU-2b")
FAKE_DOCKER = Path(processes.__file__).with_name("fake_docker.py")


def spec(**more: Any) -> EngineSpec:
    """Describe an engine with a model of the hub."""
    given = {"model": "Org/Name", **more}
    return EngineSpec(python=Path("/host/python"), sglang_version="0.5.15", **given)


def argv(image: Image | None = None, engine: EngineSpec | None = None) -> list[str]:
    """Build the command on port 21000."""
    image = image or Image("lmsysorg/sglang:v0.5.15", gpus=UUIDS)
    return docker_argv(image, engine or spec(), SETTING, 21_000, name="hicache-tune-1", id_file=ID_FILE)


def test_the_whole_command() -> None:
    """Each word, in order: what Docker takes, the image, and what the engine takes."""
    assert argv() == [
        *("docker", "run", "--rm", "--init", "--name", "hicache-tune-1", "--cidfile", "/study/container.id"),
        *("--label", "hicache-tune.run=hicache-tune-1"),
        *("--gpus", '"device=GPU-1a,GPU-2b"'),
        *("--shm-size", "32g", "--ipc", "private"),
        *("--ulimit", "memlock=-1:-1", "--ulimit", "stack=67108864:67108864"),
        *("--publish", "127.0.0.1:21000:21000"),
        *("--entrypoint", "python3", "lmsysorg/sglang:v0.5.15"),
        *("-m", "sglang.launch_server", "--model-path", "Org/Name", "--host", "0.0.0.0", "--port", "21000"),
        *("--enable-metrics", "--enable-cache-report"),
        *("--enable-hierarchical-cache", "--hicache-size", "60"),
    ]


def test_a_local_model_is_mounted_for_reading(tmp_path: Path) -> None:
    """The engine finds it where it is mounted; other folders are mounted for reading as well."""
    image = Image("i", mounts=((Path("/cache/hub"), "/root/.cache/huggingface"),))
    words = argv(image, spec(model=str(tmp_path)))
    assert words[words.index("--model-path") + 1] == "/model"
    volumes = [words[number + 1] for number, word in enumerate(words) if word == "--volume"]
    assert volumes == [f"{tmp_path}:/model:ro", "/cache/hub:/root/.cache/huggingface:ro"]


@pytest.mark.parametrize(
    ("image", "gpus"),
    [
        (Image("i", gpus=("GPU-1a",)), ["--gpus", '"device=GPU-1a"']),
        (Image("i"), ["--gpus", "all"]),
        (Image("i", with_gpus=False), []),
    ],
)
def test_gpus(image: Image, gpus: list[str]) -> None:
    """By UUID, all of them, or none; the inner quotes are Docker's own."""
    words = argv(image)
    assert (words[words.index("--gpus") :][:2] if "--gpus" in words else []) == gpus


def test_no_value_of_a_variable_is_an_argument() -> None:
    """Arguments are seen by every user of the machine; the client takes the values from its own environment."""
    words = argv(engine=spec(env={"HF_TOKEN": "secret", "A": "1"}))
    assert [words[number + 1] for number, word in enumerate(words) if word == "--env"] == ["A", "HF_TOKEN"]
    assert not any("secret" in word for word in words)


def test_cores_and_labels() -> None:
    """Cores are given at the start, as they can't be later; the user's labels stand beside ours."""
    words = argv(Image("i", labels={"team": "x"}), spec(engine_cpus=(2, 3)))
    assert words[words.index("--cpuset-cpus") + 1] == "2,3"
    assert "team=x" in words


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerLauncher:
    """Make a launcher whose Docker is `tests/support/fake_docker.py`."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_DOCKER} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("FAKE_DOCKER_HOME", str(tmp_path / "containers"))
    scrape = tmp_path / "metrics.txt"
    scrape.write_text("")
    monkeypatch.setenv("FAKE_ENGINE_WORDS", json.dumps(["--metrics", str(scrape)]))
    return DockerLauncher(spec(), Image("image", program=str(program)), tmp_path)


def launched(launcher: DockerLauncher, tmp_path: Path) -> tuple[DockerEngine, Ledger]:
    """Start a container and wait until its engine answers."""
    book = Ledger(tmp_path / "running.json")
    plan = launcher.plan(SETTING)
    engine = launcher.launch(plan, LaunchContext(tmp_path / "engine.log", book))
    wait_for(engine.listens, "the container's engine")
    return engine, book


def test_the_life_of_a_container(launcher: DockerLauncher, tmp_path: Path) -> None:
    """Its output, pids and id are known while it runs; a stop leaves nothing behind."""
    engine, _ = launched(launcher, tmp_path)
    wait_for(lambda: "fired up" in engine.log_text, "the engine's output")
    assert engine.exit_code is None
    assert engine.container_id
    pids = engine.pids()
    assert len(pids) == 2
    assert all(map(alive, pids))
    proof = engine.stop(term_s=2)
    assert proof.clean
    commands = (tmp_path / "containers" / "commands").read_text().split()
    assert [command for command in commands if command != "inspect"] == ["run", "stop", "rm", "rm"]
    assert engine.exit_code is not None
    wait_for(lambda: not any(map(alive, pids)), "the end of the container")
    assert engine.pids() == []
    assert not engine.listens()
    assert not (tmp_path / "running.json").exists()


def test_a_container_that_outlived_its_client_is_ended_by_its_id(launcher: DockerLauncher, tmp_path: Path) -> None:
    """SIGKILL of the client leaves the container; the next run finds it by the id that Docker wrote."""
    engine, book = launched(launcher, tmp_path)
    pids = engine.pids()
    assert engine._client._popen.poll() is None
    engine._client._popen.send_signal(signal.SIGKILL)
    wait_for(lambda: engine.exit_code is not None, "the end of the client")
    assert all(map(alive, pids))
    assert launcher.end_orphans(book) >= 1
    wait_for(lambda: not any(map(alive, pids)), "the end of the container")
    assert not (tmp_path / CONTAINER_FILE).exists()
    assert launcher.end_orphans(book) == 0


def test_a_stop_when_the_client_is_gone(launcher: DockerLauncher, tmp_path: Path) -> None:
    """The stop goes by the container's id, not by the client."""
    engine, _ = launched(launcher, tmp_path)
    pids = engine.pids()
    engine._client._popen.send_signal(signal.SIGKILL)
    assert engine.stop(term_s=1).clean
    wait_for(lambda: not any(map(alive, pids)), "the end of the container")


def test_an_image_that_is_not_there(launcher: DockerLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's code and words are those of the failed launch; a stop is clean all the same."""
    monkeypatch.setenv("FAKE_DOCKER_REFUSES", "1")
    context = LaunchContext(tmp_path / "log", Ledger(tmp_path / "running.json"))
    engine = launcher.launch(launcher.plan(SETTING), context)
    wait_for(lambda: engine.exit_code is not None, "the client's refusal")
    assert engine.exit_code == 125
    assert "No such image" in engine.log_text
    assert (engine.pids(), engine.container_id, engine.listens()) == ([], "", False)
    assert engine.stop(term_s=1).clean


def test_no_docker_at_all(tmp_path: Path) -> None:
    """The message names the program and the way out."""
    launcher = DockerLauncher(spec(), Image("i", program=str(tmp_path / "docker")), tmp_path)
    with pytest.raises(EngineMissing, match="no such program; install Docker or use --engine local"):
        launcher.launch(launcher.plan(SETTING), LaunchContext(tmp_path / "log", Ledger(tmp_path / "r")))


def test_an_id_that_can_t_be_read_is_no_container(tmp_path: Path) -> None:
    """Without an id no command of Docker is run at all."""
    container = Container("/nowhere/docker", tmp_path / "id")
    container.stop(1)
    container.remove()
    assert (container.id, container.pid(), container.is_running()) == ("", None, False)
    (tmp_path / "id").write_bytes(b"\xff")
    assert container.id == ""


def test_each_plan_has_a_name_of_its_own(launcher: DockerLauncher) -> None:
    """Two launches of one setting are two containers on ports that are free."""
    first, second = launcher.plan(SETTING), launcher.plan(SETTING)
    assert first.argv[5] != second.argv[5]
    assert first.base_url == f"http://127.0.0.1:{first.port}"


def test_the_user_s_command_has_none_of_our_names() -> None:
    """It is the launch on SGLang's usual port, without what finds our own containers."""
    words = DockerLauncher(spec(), Image("sglang"), Path("/study")).command(SETTING)
    assert words[:4] == ("docker", "run", "--rm", "--init")
    assert not {"--name", "--cidfile", "--label"} & set(words)
    assert words[words.index("--publish") + 1] == "127.0.0.1:30000:30000"
