"""A window on the GPU host ends in time and brings out what it measured."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scenarios import load_scenario
from scenarios.model import Synthetic
from scripts.gpu import archive as archive_module
from scripts.gpu import check, memory, window
from scripts.gpu.archive import archive_study
from scripts.gpu.host import Host
from scripts.gpu.window import Clock, collect, growing_memory, parse, run_until, search_command
from tuning.cli.options import SearchOptions

OBEYS = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(130)); print('up', flush=True); time.sleep(60)"
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_flags_behind_the_dashes_are_the_searchs() -> None:
    """`--seed` is unknown to the window, and passed on with what follows."""
    options = parse(["in", "out", "--study", "s", "--seconds", "585", "--", "--seed", "3", "--engine-arg=--x=1"])
    assert (options.bundle, options.seconds) == (Path("in"), 585.0)
    assert options.search == ["--seed", "3", "--engine-arg=--x=1"]


def test_search_resumes_what_was_carried_in(tmp_path: Path) -> None:
    """A first window starts the study, a later one goes on with it."""
    study = tmp_path / "results" / "gpu-chat"
    assert "--resume" not in search_command(Host(tmp_path), study, [], budget_s=400)
    study.mkdir(parents=True)
    (study / "study.json").touch()
    assert "--resume" in search_command(Host(tmp_path), study, [], budget_s=400)


def test_search_command_is_one_that_the_search_takes(tmp_path: Path) -> None:
    """Every flag that the window sets is a flag of `hicache-tune search`, with the budget in seconds."""
    command = search_command(Host(tmp_path), tmp_path / "results" / "gpu-chat", [], budget_s=399.6)
    flags = [word.partition("=")[0] for word in command if word.startswith("--")]
    known = {f"--{name.replace('_', '-')}" for name in SearchOptions.__dataclass_fields__}
    assert set(flags) <= known
    assert command[command.index("--budget") + 1] == "400s"


def test_closing_window_asks_the_search_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search gets SIGTERM, and time to stop its engine."""
    _stop_limits(monkeypatch, stop_s=30.0)
    assert run_until(Clock(30.0), SLEEPS, dict(os.environ)) == -signal.SIGTERM


def test_search_that_does_not_stop_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may keep the window from collecting."""
    _stop_limits(monkeypatch, stop_s=0.2)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by the child
    try:
        assert run_until(Clock(0.2), SLEEPS, dict(os.environ)) == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_search_that_ends_in_time_is_not_touched() -> None:
    """Exit codes of the search are the window's."""
    assert run_until(Clock(600.0), [sys.executable, "-c", "raise SystemExit(124)"], dict(os.environ)) == 124


def test_window_that_is_told_to_stop_tells_the_search() -> None:
    """A host that cuts the command sends SIGTERM to it alone."""
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "from scripts.gpu.window import Clock, run_until\n"
        f"sys.exit(run_until(Clock(600), [sys.executable, '-c', {OBEYS!r}], dict(os.environ)))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(30) == 130


def test_study_comes_out_without_what_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans and oversized logs stay behind; the archive unpacks to the study's own folder."""
    monkeypatch.setattr(archive_module, "MAX_MEMBER_BYTES", 1000)
    study = tmp_path / "gpu-chat"
    files = {
        "study.json": 10,
        "plans/seed-1.jsonl": 10,
        "report.html": 10,
        "trials/0000-search/trial.json": 10,
        "running.json": 2,
    }
    for name, size in {**files, "trials/0000-search/engine.log": 1001, ".lock": 0}.items():
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        (study / name).write_text("x" * size)
    archive_study(study, tmp_path / "out.tar.xz")
    with tarfile.open(tmp_path / "out.tar.xz") as tar:
        kept = {member.name for member in tar.getmembers() if member.isfile()}
    assert kept == {"gpu-chat/study.json", "gpu-chat/trials/0000-search/trial.json"}


def test_archive_that_may_not_come_back_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hosts limit what they hand over, by size."""
    monkeypatch.setattr(archive_module, "MAX_ARCHIVE_BYTES", 10)
    archive_study(tmp_path, tmp_path.with_suffix(".tar.xz"))
    assert "MORE THAN MAY COME BACK" in capsys.readouterr().out


def test_window_without_a_study_still_brings_kernels_out(tmp_path: Path) -> None:
    """What a failed first launch compiled is worth having."""
    host = Host(tmp_path / "host")
    (host.engine_home / ".triton").mkdir(parents=True)
    collect(host, tmp_path / "results" / "none", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kernels.tar.xz"]


def test_memory_that_is_shown_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """A machine that shows all of its memory is not filled."""
    with growing_memory(1):
        pass
    assert "GiB after 0 s (wanted 1)" in capfd.readouterr().out


def test_memory_grows_until_enough_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step that is used makes the machine show more, up to what was asked for."""
    blocks: list[mmap.mmap] = []
    use = memory.used_block

    def counted() -> mmap.mmap:
        blocks.append(use())
        return blocks[-1]

    monkeypatch.setattr(memory, "STEP_BYTES", 1 << 16)
    monkeypatch.setattr(memory, "used_block", counted)
    monkeypatch.setattr(memory, "shown_bytes", lambda: 31 + len(blocks))
    memory.grow(31 + 5)
    assert [len(block) for block in blocks] == [1 << 16] * 5


def test_memory_that_does_not_grow_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without more memory is filled no further than the margin."""
    monkeypatch.setattr(memory, "PATIENCE_S", 0.2)
    monkeypatch.setattr(memory, "meminfo_bytes", lambda _: memory.MARGIN_BYTES)
    memory.grow(1 << 62)


def test_host_with_an_old_package_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent and outdated packages are named, good ones and extras are not."""
    wanted = ["numpy>=1", "pandas>=99", "no-such-package>=1", "sglang>=0.5; extra == 'sglang'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: wanted)
    old, absent = check.lacks()
    assert old.startswith("pandas>=99 (has ")
    assert absent == "no-such-package>=1 (absent)"


@pytest.mark.parametrize("name", ["support-chat", "coding-agent"])
def test_brief_scenarios_have_enough_requests_for_a_p99(name: str) -> None:
    """The least number of turns is drawn rarely; the mean gives 500 requests."""
    scenario = load_scenario(str(Path(window.__file__).with_name(f"{name}.yaml")))
    assert isinstance(scenario, Synthetic)
    turns = scenario.turns.model_dump()
    assert scenario.sessions.counted * (turns["min"] + turns["max"]) / 2 >= 500


def _stop_limits(monkeypatch: pytest.MonkeyPatch, *, stop_s: float) -> None:
    monkeypatch.setattr(window, "STOP_S", stop_s)
    monkeypatch.setattr(window, "COLLECT_S", 0.0)
