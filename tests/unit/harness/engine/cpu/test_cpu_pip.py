"""What pip printed, recorded from real runs, becomes progress and errors."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.cpu import pip
from harness.errors import InstallError

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> str:
    """Read one recorded output."""
    return (DATA / f"pip_{name}.txt").read_text(encoding="utf-8")


def test_each_package_counts_once_and_what_is_slow_is_named() -> None:
    """Packages count whether they are downloaded or come from a folder; downloads and unpacking are told."""
    seen = list(pip.progress(recorded("ok").splitlines(keepends=True)))
    assert seen[:3] == [
        (1, "sglang"),
        (1, "downloading sglang-0.5.15-cp311-cp311-manylinux_2_34_x86_64.whl (12.8 MB)"),
        (2, "torch"),
    ]
    assert seen[-1] == (11, "unpacking")
    counts = [got for got, _ in seen]
    assert counts == sorted(counts)


def test_a_silent_index_shows_in_the_progress() -> None:
    """While pip tries again, the user is told why nothing moves."""
    assert set(pip.progress(recorded("unreachable").splitlines())) == {
        (0, "the package index does not answer; trying again")
    }


@pytest.mark.parametrize(
    ("name", "reason", "last"),
    [
        ("unreachable", "pip cannot reach its package index", "No matching distribution found for click==8.5.1"),
        ("missing", "a pinned package is on none of pip's indexes", "No matching distribution found for click==99.0"),
        ("nospace", "the disk filled up", "[Errno 28] No space left on device"),
        ("hash", "a downloaded package is damaged", "DO NOT MATCH THE HASHES"),
        ("damaged", "a downloaded package is damaged", "is invalid."),
    ],
)
def test_a_failure_of_pip_is_one_sentence(name: str, reason: str, last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recorded failure has its reason, pip's own last word and the place of the log."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    said = pip.explain(recorded(name), Path("/home/pip.log"))
    assert said.startswith(reason)
    assert last in said
    assert said.endswith("all of it: /home/pip.log)")
    assert "\n" not in said


def test_a_missing_wheel_on_another_platform_names_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SGLang has no wheel the message says which platform has."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    said = pip.explain(recorded("missing"), Path("/home/pip.log"))
    assert said.startswith("a package has no wheel for Darwin arm64; the CPU engine needs Linux on x86-64")


@given(st.text())
def test_any_output_can_be_read(output: str) -> None:
    """Whatever pip prints gives progress and one sentence."""
    list(pip.progress(output.splitlines()))
    assert pip.explain(output, Path("pip.log")).endswith("all of it: pip.log)")


def test_pip_is_run_and_its_output_kept(tmp_path: Path) -> None:
    """A run that succeeds reports as it goes and leaves its log."""
    seen: list[tuple[int, str]] = []
    log = tmp_path / "pip.log"
    run(f"print({recorded('ok')!r}, end='')", log, seen)
    assert seen[-1] == (11, "unpacking")
    assert log.read_text(encoding="utf-8") == recorded("ok")


def test_a_run_that_fails_raises(tmp_path: Path) -> None:
    """An exit code other than 0 is an InstallError with the reason."""
    with pytest.raises(InstallError, match="the disk filled up"):
        run(f"print({recorded('nospace')!r}); raise SystemExit(1)", tmp_path / "pip.log", [])


def run(code: str, log: Path, seen: list[tuple[int, str]]) -> None:
    """Run `code` in place of pip."""
    pip.run_pip([sys.executable, "-c", code], env={}, log_path=log, report=lambda *got: seen.append(got))
