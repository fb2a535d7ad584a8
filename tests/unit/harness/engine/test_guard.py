"""The guard: no engine outlives a harness that was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from harness.engine import guard
from harness.engine.ledger import Ledger
from tests.support.processes import SLEEP, alive, wait_for

HARNESS = """
import sys, time
from pathlib import Path
from harness.engine.ledger import Ledger
from harness.engine.process import EngineProcess
folder = Path(sys.argv[1])
engine = EngineProcess.launch(
    [sys.executable, "-c", sys.argv[2]], env={}, port=1, log_path=folder / "log", book=Ledger(folder / "running.json")
)
while "up" not in engine.log_text:
    time.sleep(0.02)
print(engine.owned.pid, flush=True)
time.sleep(600)
"""


def test_the_engine_ends_with_a_killed_harness(tmp_path: Path) -> None:
    """After SIGKILL to the harness the kernel tells the engine to end; what is left on disk goes with the next run."""
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path), SLEEP], stdout=subprocess.PIPE, text=True
    ) as harness:
        assert harness.stdout is not None
        engine = int(harness.stdout.readline())
        assert alive(engine)
        harness.send_signal(signal.SIGKILL)
        wait_for(lambda: not alive(engine), "end of the engine")
    with contextlib.suppress(ChildProcessError):
        os.waitpid(engine, 0)  # this process may have adopted it, as any that has launched an engine
    book = Ledger(tmp_path / "running.json")
    assert book.scratch.exists()
    book.end_orphans()
    assert list(tmp_path.glob("*.json")) == []
    assert not book.scratch.exists()


def test_nothing_is_launched_for_a_harness_that_is_gone() -> None:
    """A parent that died before the guard asked would never be noticed again."""
    argv = [sys.executable, "-I", guard.__file__, str(os.getppid()), sys.executable, "-c", "print('launched')"]
    run = subprocess.run(argv, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stdout == ""
    assert "the harness is gone; nothing was launched" in run.stderr


def test_the_command_takes_the_guard_s_place() -> None:
    """The same process runs the command, found as a shell would, with its arguments untouched."""
    argv = [sys.executable, "-I", guard.__file__, str(os.getpid()), "sh", "-c", 'echo $$ "$1"', "sh", "a b; c"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as command:
        said, _ = command.communicate()
    assert said == f"{command.pid} a b; c\n"
