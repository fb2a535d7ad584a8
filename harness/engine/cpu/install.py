"""Install the CPU engine: once, resumable, one at a time."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from harness.engine.cpu import build, engine
from harness.engine.cpu.engine import CpuEngine, Installed
from harness.errors import EngineMissing, InstallError

INDEX_VARIABLE = "HICACHE_TUNE_WHEEL_INDEX"


class Step(enum.StrEnum):
    """What an installation goes through, in this order."""

    PACKAGES = "packages"
    CHECK = "check"
    MODEL = "model"


@dataclass(frozen=True)
class InstallProgress:
    """How far a step is: `done` of `total`, and what it does now."""

    step: Step
    done: int
    total: int
    message: str


class Builder(Protocol):
    """What does the work: the functions of `harness.engine.cpu.build`, or a double in tests."""

    def package_count(self) -> int:
        """Count the packages that are installed."""

    def install_packages(self, home: Path, wheel_index: str | None, report: Callable[[int, str], None]) -> None:
        """Fill a fresh virtual environment."""

    def make_model(self, home: Path) -> None:
        """Make the model."""

    def check_imports(self, home: Path) -> dict[str, str]:
        """Return the versions that can be imported."""


def install(
    home: Path | None = None,
    *,
    wheel_index: str | None = None,
    report: Callable[[InstallProgress], None],
    builder: Builder = build,
) -> CpuEngine:
    """Install what is missing of the CPU engine in `home` and return it; at once when nothing is missing.

    `wheel_index` is a further package index or a folder of wheels, by default HICACHE_TUNE_WHEEL_INDEX.
    Raises InstallError when it cannot be completed; steps that were completed are kept for the next call.
    """
    home = (home or engine.default_home()).absolute()
    with contextlib.suppress(EngineMissing):
        return engine.find(home)
    with _alone(home):
        _complete(home, wheel_index or os.environ.get(INDEX_VARIABLE), report, builder)
    return engine.find(home)


def _complete(home: Path, wheel_index: str | None, report: Callable[[InstallProgress], None], builder: Builder) -> None:
    done = engine.finished(home)
    if done is None or done.packages != engine.packages_fingerprint() or not engine.python_of(home).exists():
        total = builder.package_count()

        def packages(got: int, message: str) -> None:
            report(InstallProgress(Step.PACKAGES, got, total, message))

        (home / "installed.json").unlink(missing_ok=True)
        builder.install_packages(home, wheel_index, packages)
        packages(total, "installed")
        report(InstallProgress(Step.CHECK, 0, 1, "importing SGLang"))
        versions = builder.check_imports(home)
        report(InstallProgress(Step.CHECK, 1, 1, f"SGLang {versions['sglang']}, torch {versions['torch']}"))
        done = Installed(packages=engine.packages_fingerprint(), model="", torch_version=versions["torch"])
        engine.record(home, done)
    report(InstallProgress(Step.MODEL, 0, 1, "making the model"))
    builder.make_model(home)
    engine.record(home, done.model_copy(update={"model": engine.model_fingerprint()}))
    report(InstallProgress(Step.MODEL, 1, 1, "made"))


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = FileLock(home / "install.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise InstallError(f"another installation of the CPU engine runs in {home}; wait until it ends") from None
    except OSError as problem:
        raise InstallError(
            f"cannot write to {home} ({problem.strerror}); name another folder with {engine.HOME_VARIABLE}"
        ) from None
    try:
        yield
    finally:
        lock.release()
