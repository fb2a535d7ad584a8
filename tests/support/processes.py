"""Small real processes for tests: programs of a few lines, and waiting for what they do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
"""Ignores SIGTERM."""


def with_child(child: str, then: str) -> str:
    """Write a program that starts `child` in its own session, prints the child's pid, and goes on with `then`."""
    start = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid, flush=True)"
    return f"{start}; {then}"


def wait_for(seen: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
    """Wait until `seen`; fail when it takes too long."""
    deadline = time.monotonic() + limit_s
    while not seen():
        assert time.monotonic() < deadline, f"not seen within {limit_s:g} s: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def foreign(code: str = SLEEP) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that belongs to nobody's engine, in a session of its own, until the block ends."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def children_running(module: str, parent: int | None = None) -> list[psutil.Process]:
    """Find the living processes under `parent`, by default under this one, that run a Python module."""
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # zombies of other tests among them
            if module in process.cmdline():
                found.append(process)
    return found
