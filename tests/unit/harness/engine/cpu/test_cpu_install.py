"""Installing the CPU engine: once, going on where it stopped, one at a time; with a double that does the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from filelock import FileLock

from harness.engine.cpu import engine
from harness.engine.cpu.install import InstallProgress, Step, install
from harness.errors import EngineMissing, InstallError


class Killed(BaseException):
    """The process ends here."""


@dataclass
class FakeBuilder:
    """Does the steps by making their files; ends the process before the step named `dies_in`."""

    dies_in: str = ""
    calls: list[str] = field(default_factory=list)
    wheel_index: str | None = None

    def package_count(self) -> int:
        """Count three packages."""
        return 3

    def install_packages(self, home: Path, wheel_index: str | None, report: Callable[[int, str], None]) -> None:
        """Make an interpreter."""
        self._enter("packages")
        self.wheel_index = wheel_index
        report(1, "torch")
        engine.python_of(home).parent.mkdir(parents=True, exist_ok=True)
        engine.python_of(home).touch()

    def make_model(self, home: Path) -> None:
        """Make a folder."""
        self._enter("model")
        engine.model_of(home).mkdir()

    def check_imports(self, home: Path) -> dict[str, str]:
        """Find two versions."""
        self._enter("check")
        return {"sglang": "0.5.15", "torch": "2.13.0+cpu"}

    def _enter(self, step: str) -> None:
        if step == self.dies_in:
            raise Killed
        self.calls.append(step)


def quiet(_progress: InstallProgress) -> None:
    """Show nothing."""


def test_an_installation_gives_the_engine_and_tells_its_steps(tmp_path: Path) -> None:
    """A first installation does each step in order, reports it, and is found afterwards."""
    seen: list[InstallProgress] = []
    installed = install(tmp_path, report=seen.append, builder=FakeBuilder())
    assert installed == engine.find(tmp_path)
    assert installed.torch_version == "2.13.0+cpu"
    assert installed.model_path == tmp_path / "model"
    assert [progress.step for progress in seen] == [
        *[Step.PACKAGES] * 2,
        *[Step.CHECK] * 2,
        *[Step.MODEL] * 2,
    ]
    assert seen[0] == InstallProgress(Step.PACKAGES, 1, 3, "torch")
    assert seen[1] == InstallProgress(Step.PACKAGES, 3, 3, "installed")


def test_a_second_installation_does_nothing(tmp_path: Path) -> None:
    """What is installed is not installed again."""
    install(tmp_path, report=quiet, builder=FakeBuilder())
    again = FakeBuilder()
    install(tmp_path, report=quiet, builder=again)
    assert again.calls == []


@pytest.mark.parametrize(
    ("dies_in", "left"),
    [
        ("packages", ["packages", "check", "model"]),
        ("check", ["packages", "check", "model"]),
        ("model", ["model"]),
    ],
)
def test_an_installation_that_was_killed_is_completed(tmp_path: Path, dies_in: str, left: list[str]) -> None:
    """After a kill in any step there is no engine, and the next call does what is left."""
    with pytest.raises(Killed):
        install(tmp_path, report=quiet, builder=FakeBuilder(dies_in))
    with pytest.raises(EngineMissing):
        engine.find(tmp_path)
    again = FakeBuilder()
    install(tmp_path, report=quiet, builder=again)
    assert again.calls == left


def test_other_pins_are_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New requirements make the installed engine stale, and an installation renews it, also after a kill."""
    install(tmp_path, report=quiet, builder=FakeBuilder())
    monkeypatch.setattr(engine, "packages_fingerprint", lambda: "other")
    with pytest.raises(EngineMissing, match="is not of this version; run `hicache-tune engine install-cpu`"):
        engine.find(tmp_path)
    with pytest.raises(Killed):
        install(tmp_path, report=quiet, builder=FakeBuilder("check"))
    monkeypatch.undo()
    with pytest.raises(EngineMissing):
        engine.find(tmp_path)


def test_another_model_recipe_keeps_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new recipe of the model makes the model again and installs nothing."""
    install(tmp_path, report=quiet, builder=FakeBuilder())
    engine.model_of(tmp_path).rmdir()
    monkeypatch.setattr(engine, "model_fingerprint", lambda: "other")
    again = FakeBuilder()
    install(tmp_path, report=quiet, builder=again)
    assert again.calls == ["model"]


def test_one_installation_at_a_time(tmp_path: Path) -> None:
    """While another one runs, an installation ends at once and says so."""
    builder = FakeBuilder()
    with (
        FileLock(tmp_path / "install.lock"),
        pytest.raises(InstallError, match="another installation of the CPU engine runs in"),
    ):
        install(tmp_path, report=quiet, builder=builder)
    assert builder.calls == []
    install(tmp_path, report=quiet, builder=builder)


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the place of the folder is an error that says which variable moves it."""
    (tmp_path / "file").touch()
    with pytest.raises(InstallError, match="name another folder with HICACHE_TUNE_CPU_ENGINE_HOME"):
        install(tmp_path / "file" / "home", report=quiet, builder=FakeBuilder())


def test_the_wheel_index_comes_from_the_call_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that is named wins over HICACHE_TUNE_WHEEL_INDEX, which is used otherwise."""
    monkeypatch.setenv("HICACHE_TUNE_WHEEL_INDEX", "from the environment")
    named, unnamed = FakeBuilder(), FakeBuilder()
    install(tmp_path / "one", wheel_index="named", report=quiet, builder=named)
    install(tmp_path / "two", report=quiet, builder=unnamed)
    assert (named.wheel_index, unnamed.wheel_index) == ("named", "from the environment")


def test_an_absent_engine_says_how_to_get_it(tmp_path: Path) -> None:
    """Nothing installed, or a state that cannot be read, gives the place and the command."""
    message = f"the CPU engine is not installed in {tmp_path}; run `hicache-tune engine install-cpu`"
    with pytest.raises(EngineMissing) as absent:
        engine.find(tmp_path)
    (tmp_path / "installed.json").write_text('{"packages": ')
    with pytest.raises(EngineMissing) as damaged:
        engine.find(tmp_path)
    assert [str(absent.value), str(damaged.value)] == [message, message]
