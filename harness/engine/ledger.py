"""Which processes are ours: recorded before anything else, so that a killed run can be cleaned up.

A process is known by its pid and its start time together; a pid alone may by now be somebody else's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from harness.errors import StoreError
from harness.files import write_atomically

AGAIN_S = 0.4
"""After so long the next signal is given."""
UNLOAD_S = 0.5
"""What a leader without children is still given, to remove its temporary files."""
KILL_S = 60.0
"""A killed process lives on while the kernel unpins its host pool, which takes tens of seconds for a large one."""


@dataclass(frozen=True)
class Owned:
    """The leader of a session of processes that we started; all members carry its pid as session id."""

    pid: int
    started: float
    """Seconds since boot; seconds since the epoch would change whenever somebody sets the clock."""
    boot: str
    """The boot since which they are counted: pids come again after the next one."""

    @classmethod
    def of(cls, pid: int) -> Owned:
        """Record the process `pid`, which must be alive and ours."""
        return cls(pid, _started(pid), _boot())

    def members(self) -> list[psutil.Process]:
        """List the living processes of this session, leader first; zombies hold nothing and do not count.

        A member is younger than the leader: an older process with this session id means that the pid was reused.
        """
        if self.boot != _boot():
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            if Owned.of(self.pid) != self:
                return []  # the pid belongs to a later, foreign process
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                if self._has(pid) and _started(pid) >= self.started and not _is_zombie(process := psutil.Process(pid)):
                    found.append(process)
        return sorted(found, key=lambda process: process.pid != self.pid)

    def reap(self) -> None:
        """Collect ended members that the kernel handed to us (`process.adopt_orphans`); the leader is its Popen's."""
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error, OSError):
                if child.pid != self.pid and self._has(child.pid) and _is_zombie(child):
                    os.waitpid(child.pid, os.WNOHANG)

    def _has(self, pid: int) -> bool:
        return os.getsid(pid) == self.pid


def _started(pid: int) -> float:
    # psutil adds the time of boot, which it reads from the clock. The kernel counts in hundredths.
    return round(psutil.Process(pid).create_time() - psutil.boot_time(), 2)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _is_zombie(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_ZOMBIE


def end(
    owned: Owned,
    *,
    term_s: float,
    kill_s: float = KILL_S,
    must_hurry: Callable[[], bool] = lambda: False,
    signals: Sequence[signal.Signals] = (signal.SIGTERM,),
) -> int:
    """End the session: `signals` to its leader, then SIGKILL to whatever is left. Return how many had to be killed.

    The leader gets the next signal when it lives on a while after the one before. It is left `term_s` in all to
    end by itself, or less once `must_hurry`. A leader whose children have ended at its word has
    nothing left to do but to unload Python, which takes seconds: it is not waited for, and does not count as killed.
    """
    is_done = _wait_ended(owned, term_s, must_hurry, signals)
    killed = set()
    deadline = time.monotonic() + kill_s
    while (rest := owned.members()) and time.monotonic() < deadline:
        for process in rest:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.add(process.pid)
        _wait_ended(owned, 0.5)
    owned.reap()
    return len(killed - {owned.pid} if is_done else killed)


def _wait_ended(
    owned: Owned,
    limit_s: float,
    must_hurry: Callable[[], bool] = lambda: False,
    signals: Sequence[signal.Signals] = (),
) -> bool:
    """Wait until the session has ended; say whether its children have, so that only the leader may be left.

    A session whose leader is gone is not waited for when there are `signals` to give: nobody would hear them.
    """
    began = time.monotonic()
    deadline, given = began + limit_s, 0
    led = alone = False
    while members := owned.members():
        leader = next((process for process in members if process.pid == owned.pid), None)
        if signals and not given and leader is None:
            return False
        if leader is not None and given < len(signals) and time.monotonic() >= began + given * AGAIN_S:
            with contextlib.suppress(psutil.Error):
                leader.send_signal(signals[given])
            given += 1
        if led and not alone and members == [leader]:
            alone = True
            deadline = min(deadline, time.monotonic() + UNLOAD_S)
        led = led or len(members) > 1
        if time.monotonic() >= deadline or must_hurry():
            break
        time.sleep(0.05)
    return alone


class Ledger:
    """The file that names the session running now; absent when nothing of ours should run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, owned: Owned) -> None:
        """Remember `owned` until `clear`."""
        write_atomically(self._path, json.dumps(asdict(owned)))

    def clear(self) -> None:
        """Forget: the session has ended, and what it has left in its scratch folder with it."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._path.unlink(missing_ok=True)

    @property
    def scratch(self) -> Path:
        """The folder for what the session writes in passing; its name is short, because those of sockets have to be."""
        book = hashlib.sha256(str(self._path.absolute()).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"hicache-tune-{os.getuid()}-{book}"

    def make_scratch(self) -> Path:
        """Make the scratch folder, empty; raise StoreError when that cannot be."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        try:
            self.scratch.mkdir(mode=0o700)
        except OSError as problem:
            raise StoreError(
                f"{self.scratch}: cannot be made ({problem.strerror}); remove it, or name another folder in TMPDIR"
            ) from None
        return self.scratch

    def end_orphans(self, *, term_s: float = 20.0) -> int:
        """End what an earlier, killed run left behind. Return how many processes were found."""
        try:
            owned = Owned(**json.loads(self._path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return 0
        found = len(owned.members())
        end(owned, term_s=term_s)
        if not owned.members():
            self.clear()
        return found
