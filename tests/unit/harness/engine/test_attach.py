"""An engine that somebody else runs: measured as it is, or restarted by the user's command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.engine.attach import (
    AttachedEngine,
    AttachLauncher,
    Attachment,
    RestartHook,
    check_hook,
    check_restarted,
    run_hook,
)
from harness.engine.client import EngineClient
from harness.engine.failure import Blame, FailureKind, LaunchFailed
from harness.engine.handle import EngineHandle, LaunchContext, Launcher
from harness.engine.launch import ProcessLauncher
from harness.engine.ledger import Ledger
from harness.engine.process import free_port
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.errors import ConfigError, Interrupted
from tests.support import processes
from tests.support.processes import SLEEP, alive, foreign, wait_for, with_child

FAKE_ENGINE = Path(processes.__file__).with_name("fake_engine.py")
SETTING = Setting(hicache=True, hicache_size=60, hicache_write_policy="write_back")
FLAGS = ["--enable-hierarchical-cache", "--hicache-size", "60", "--hicache-write-policy", "write_back"]

RESTART = """
import json, os, signal, subprocess, sys
from pathlib import Path
here = Path(sys.argv[1])
said = json.load(sys.stdin) if sys.argv[2] == "json" else {"flags": sys.argv[3:]}
(here / "said.json").write_text(json.dumps(said))
if (here / "pid").exists():
    os.killpg(int((here / "pid").read_text()), signal.SIGKILL)
words = [sys.executable, str(here / "fake_engine.py"), "--port", (here / "port").read_text(), "--metrics", os.devnull]
out = (here / "engine.log").open("w")
engine = subprocess.Popen([*words, *said["flags"]], stdout=out, start_new_session=True)
(here / "pid").write_text(str(engine.pid))
print("restarted")
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """Make the folder of somebody's machine: a restart script, a port, and after a restart an engine."""
    (tmp_path / "restart.py").write_text(RESTART)
    (tmp_path / "fake_engine.py").write_text(FAKE_ENGINE.read_text())
    (tmp_path / "port").write_text(str(free_port()))
    yield tmp_path
    if (tmp_path / "pid").exists():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def hook(machine: Path, hand_over: str = "append", **more: Any) -> RestartHook:
    """Describe the restart script of the machine."""
    command = (sys.executable, str(machine / "restart.py"), str(machine), hand_over)
    return RestartHook.parse({"command": command, "hand_over": hand_over, **more}, where="[attach]")


def attached(machine: Path, restart: RestartHook | None) -> Attachment:
    """Describe where the machine's engine is."""
    return Attachment(url=f"http://127.0.0.1:{(machine / 'port').read_text()}/", restart=restart)


def launch(launcher: AttachLauncher, folder: Path, **more: Any) -> AttachedEngine:
    """Attach, or restart and attach."""
    book = Ledger(folder / "running.json")
    return launcher.launch(launcher.plan(SETTING), LaunchContext(folder / "hook.log", book, **more))


@pytest.mark.parametrize("hand_over", ["append", "json"])
def test_a_hook_restarts_the_engine_with_the_flags(machine: Path, hand_over: str) -> None:
    """The engine gets the flags of every launch and of the setting, twice; it lives on after each stop."""
    launcher = AttachLauncher(attached(machine, hook(machine, hand_over)), flags=("--enable-metrics",))
    plan = launcher.plan(SETTING)
    assert (plan.argv[4:] == ("--enable-metrics", *FLAGS)) is (hand_over == "append")
    pids = []
    for _ in range(2):
        engine: EngineHandle = launch(launcher, machine)
        client = EngineClient(plan.base_url)
        wait_for(client.healthy, "the restarted engine")
        client.close()
        said = json.loads((machine / "said.json").read_text())
        assert said["flags"] == ["--enable-metrics", *FLAGS]
        assert engine.log_text == "restarted\n"
        assert engine.listens()
        assert engine.stop() is None
        pids.append(int((machine / "pid").read_text()))
        assert alive(pids[-1])
        assert not (machine / "running.json").exists()
    assert pids[0] != pids[1]
    if hand_over == "json":
        assert said["schema_version"] == 1
        assert said["base_url"] == plan.base_url
        assert said["setting"]["hicache-size"] == 60


def test_without_a_hook_nothing_is_run(machine: Path) -> None:
    """It is only measured: no command, no pids, no exit code, and a stop leaves it alone."""
    with foreign(f"import socket; s = socket.create_server(('127.0.0.1', {(machine / 'port').read_text()})); {SLEEP}"):
        launcher = AttachLauncher(attached(machine, None))
        plan = launcher.plan(SETTING)
        assert (plan.argv, plan.log_tells_phases) == ((), False)
        engine = launch(launcher, machine)
        assert (engine.exit_code, engine.pids(), engine.log_text) == (None, [], "")
        engine.pin((0,))
        engine.stop()
        assert engine.listens()
    assert not engine.listens()


@pytest.mark.parametrize(
    ("printed", "code", "kind", "blame"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory", 1, FailureKind.GPU_OOM_AT_START, Blame.SETTING),
        ("ValueError: Not enough host memory available. Requesting", 1, FailureKind.HOST_MEMORY_REFUSED, Blame.SETTING),
        ("error: unrecognized arguments: --x", 2, FailureKind.BAD_FLAG, Blame.USER),
        ("connection refused", 75, FailureKind.CRASH, Blame.MACHINE),
        ("", 1, FailureKind.CRASH, Blame.MACHINE),
    ],
)
def test_a_hook_that_fails_is_classed_by_what_it_printed(
    tmp_path: Path, printed: str, code: int, kind: FailureKind, blame: Blame
) -> None:
    """A hook that prints the engine's log tells why; its code is kept."""
    program = f"print({printed!r}); raise SystemExit({code})"
    with pytest.raises(LaunchFailed) as failed:
        run(tmp_path, program)
    assert (failed.value.failure.kind, failed.value.failure.blame) == (kind, blame)
    assert failed.value.failure.exit_code == code
    if not printed:
        assert failed.value.failure.said == "the restart hook ended with 1"


def run(folder: Path, program: str, *, timeout_s: float = 20.0, **more: Any) -> None:
    """Run a hook that is a few lines of Python."""
    context = LaunchContext(folder / "hook.log", Ledger(folder / "running.json"), **more)
    run_hook([sys.executable, "-c", program], b"{}\n", context, timeout_s=timeout_s)


def test_a_hook_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    """After its time it counts as a slow start, and no process of it is left."""
    with pytest.raises(LaunchFailed) as failed:
        run(tmp_path, with_child(SLEEP, SLEEP), timeout_s=1.0)
    assert failed.value.failure.kind is FailureKind.SLOW_START
    assert failed.value.failure.said == "the restart hook had not ended after 1 s"
    child = int((tmp_path / "hook.log").read_text().splitlines()[0])
    wait_for(lambda: not alive(child), "the end of the hook's child")
    assert not (tmp_path / "running.json").exists()


def test_ctrl_c_is_heard_while_a_hook_runs(tmp_path: Path) -> None:
    """The hook is ended, and the trial is interrupted."""
    with pytest.raises(Interrupted):
        run(tmp_path, SLEEP, should_stop=lambda: True)


def test_a_hook_that_reads_nothing(tmp_path: Path) -> None:
    """What it is told on stdin may stay unread."""
    run(tmp_path, "import os; os.close(0)")
    assert (tmp_path / "hook.log").read_text() == ""


def test_a_hook_of_a_killed_run_is_ended(tmp_path: Path) -> None:
    """The ledger names the hook while it runs, so a resume can end it."""
    book = Ledger(tmp_path / "running.json")
    seen = []

    def look() -> bool:
        seen.append((tmp_path / "running.json").exists())
        return False

    run(tmp_path, "import time; time.sleep(0.3)", should_stop=look)
    assert seen
    assert all(seen)
    assert AttachLauncher(Attachment(url="http://127.0.0.1:1")).end_orphans(book) == 0


def test_a_program_that_is_not_there() -> None:
    """The user learns it before the first trial."""
    with pytest.raises(ConfigError, match="restart hook /nowhere/restart: no such program; give its path"):
        check_hook(RestartHook(command=("/nowhere/restart",)))
    check_hook(RestartHook(command=(sys.executable,)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "ftp://h"}, "is no address; give http://HOST:PORT"),
        ({"url": "127.0.0.1:30000"}, "is no address; give http://HOST:PORT"),
        ({"url": "http://user:key@h"}, "a key must not stand in an address"),
        ({"url": "http://h/v1"}, "give the server's address alone, without a path"),
        ({"url": "http://h", "restart": {"command": []}}, "restart.command"),
        ({"url": "http://h", "restart": {"command": ["x"], "hand_over": "file"}}, "restart.hand_over"),
        ({"url": "http://h", "restart": {"command": ["x"], "timeout_s": 0}}, "restart.timeout_s"),
        ({"url": "http://h", "restart": {"comand": ["x"]}}, "unknown key `restart.comand`; did you mean `command`?"),
    ],
)
def test_bad_attachments_are_refused(given: dict[str, Any], said: str) -> None:
    """What stands in the TOML file is checked, and the key at fault is named."""
    with pytest.raises(ConfigError) as refused:
        Attachment.parse(given, where="hicache-tune.toml, [attach]")
    assert said in str(refused.value)


@pytest.mark.parametrize(("url", "port"), [("http://h", 80), ("https://h", 443), ("http://h:30000/", 30_000)])
def test_addresses(url: str, port: int) -> None:
    """The port is the scheme's when none is given."""
    to = Attachment(url=url)
    assert (to.host, to.port, to.base_url) == ("h", port, url.rstrip("/"))


def test_a_local_process_is_launched_in_the_same_words(tmp_path: Path) -> None:
    """The three launchers are interchangeable; the one of processes runs the spec's command."""
    spec = EngineSpec(python=Path(sys.executable), model="m", sglang_version="0.5.15", env={"A": "1"})
    launcher: Launcher = ProcessLauncher(spec)
    plan = launcher.plan(SETTING)
    assert list(plan.argv) == spec.argv(SETTING, plan.port)
    assert (plan.env, plan.base_url) == ({"A": "1"}, f"http://127.0.0.1:{plan.port}")
    book = Ledger(tmp_path / "running.json")
    engine: EngineHandle = launcher.launch(plan, LaunchContext(tmp_path / "log", book))
    proof = engine.stop(term_s=5)
    assert proof is not None
    assert proof.clean
    assert launcher.end_orphans(book) == 0


def test_a_hook_that_did_not_pass_a_flag_on_is_found_out() -> None:
    """What would be measured is another setting; it is the user who mends the hook."""
    info = {"enable_hierarchical_cache": True, "hicache_size": 60, "hicache_write_policy": "write_through"}
    with pytest.raises(LaunchFailed, match="runs --hicache-write-policy write_through and not write_back") as refused:
        check_restarted(SETTING, info)
    assert refused.value.failure.blame is Blame.USER
    check_restarted(SETTING, {**info, "hicache_write_policy": "write_back"})


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://127.0.0.1:30000", True),
        ("http://localhost", True),
        ("http://[::1]:30000", True),
        ("http://10.0.0.7:30000", False),
        ("https://sglang.example", False),
    ],
)
def test_whose_memory_it_has(url: str, near: bool) -> None:
    """Only behind an address of loopback it is this machine's."""
    assert Attachment(url=url).is_near is near


def test_the_user_s_command(tmp_path: Path) -> None:
    """The hook with its flags; a launch where the hook reads them from stdin; none without a hook."""
    commands = [
        AttachLauncher(Attachment(url="http://h:1", restart=hook), ("--enable-metrics",), "Org/Name").command(SETTING)
        for hook in (RestartHook(command=("r", "x")), RestartHook(command=("r",), hand_over="json"), None)
    ]
    launch = ("python", "-m", "sglang.launch_server", "--model-path", "Org/Name")
    assert commands == [("r", "x", "--enable-metrics", *FLAGS), (*launch, "--enable-metrics", *FLAGS), ()]
