"""Which processes are ours: recorded before anything else, so that a killed run can be cleaned up.

A process is known by its pid and its start time together; a pid alone may by now be somebody else's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from harness.files import write_atomically


@dataclass(frozen=True)
class Owned:
    """The leader of a session of processes that we started; all members carry its pid as session id."""

    pid: int
    started: float
    """Seconds since the epoch, as psutil gives them."""

    @classmethod
    def of(cls, pid: int) -> Owned:
        """Record the process `pid`, which must be alive and ours."""
        return cls(pid, psutil.Process(pid).create_time())

    def members(self) -> list[psutil.Process]:
        """List the living processes of this session, leader first; zombies hold nothing and do not count.

        A member is younger than the leader: an older process with this session id means that the pid was reused.
        """
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                same_session = os.getsid(process.pid) == self.pid
                if same_session and process.create_time() >= self.started - 0.01 and not _is_zombie(process):
                    found.append(process)
        if any(p.pid == self.pid and abs(p.create_time() - self.started) > 0.01 for p in found):
            return []  # the pid belongs to a later, foreign session leader
        return sorted(found, key=lambda process: process.pid != self.pid)


def _is_zombie(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_ZOMBIE


def end(owned: Owned, *, term_s: float, kill_s: float = 10.0) -> int:
    """End the session: SIGTERM to its leader, then SIGKILL to whatever is left. Return how many had to be killed."""
    leader = [p for p in owned.members() if p.pid == owned.pid]
    for process in leader:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    if leader:
        _wait_gone(owned, term_s)
    killed = 0
    deadline = time.monotonic() + kill_s
    while (rest := owned.members()) and time.monotonic() < deadline:
        for process in rest:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed += 1
        _wait_gone(owned, 0.5)
    return killed


def _wait_gone(owned: Owned, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        reap_children()
        if not owned.members():
            return
        time.sleep(0.05)


def reap_children() -> None:
    """Collect ended grandchildren that the kernel handed to us (see `process.adopt_orphans`)."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE and child.pid not in _awaited:
                os.waitpid(child.pid, os.WNOHANG)


_awaited: set[int] = set()
"""Children with a Popen of their own: only that may wait for them."""


def awaited(pid: int) -> None:
    """Leave the reaping of `pid` to its Popen."""
    _awaited.add(pid)


class Ledger:
    """The file that names the session running now; absent when nothing of ours should run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, owned: Owned) -> None:
        """Remember `owned` until `clear`."""
        write_atomically(self._path, json.dumps(asdict(owned)))

    def clear(self) -> None:
        """Forget: the session has ended."""
        self._path.unlink(missing_ok=True)

    def end_orphans(self, *, term_s: float = 20.0) -> int:
        """End what an earlier, killed run left behind. Return how many processes were found."""
        try:
            owned = Owned(**json.loads(self._path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return 0
        found = len(owned.members())
        if found:
            end(owned, term_s=term_s)
        self.clear()
        return found
