"""The engine as a process: launched in a session of its own, logged to a file, stopped to the last child."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.engine import guard, ledger
from harness.engine.ledger import Ledger, Owned
from harness.errors import EngineMissing

PR_SET_CHILD_SUBREAPER = 36
PORTS = range(20_000, 32_768)
"""Below those that the kernel gives to clients (`net.ipv4.ip_local_port_range`), so that none of them takes it."""
SIGTERM_ALONE = (signal.SIGTERM,)
SIGINTS = (signal.SIGINT,) * 5
"""SGLang looks only every 5 s whether SIGTERM has come, then waits for its requests, and up to 15 s for its schedulers.
The web server within it follows SIGINT at once, and waits for nothing at the second; a busy one may miss one."""
GRPC_OFFSET = 10_000
"""SGLang derives its gRPC port so, and refuses to start when that is no port."""


@dataclass(frozen=True)
class StopProof:
    """What was seen after a stop."""

    exit_code: int | None
    killed: int
    """Processes that did not follow SIGTERM in time."""
    left: int
    """Processes of the engine still alive: must be 0."""
    port_free: bool

    @property
    def clean(self) -> bool:
        """Whether nothing of the engine is left."""
        return self.left == 0 and self.port_free


class EngineProcess:
    """A launched engine: the leader and every process of its session."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        owned: Owned,
        port: int,
        log_path: Path,
        book: Ledger,
        stop_signals: Sequence[signal.Signals] = SIGTERM_ALONE,
    ) -> None:
        self._popen = popen
        self.owned = owned
        self.port = port
        self.log_path = log_path
        self._ledger = book
        self._stop_signals = stop_signals

    @classmethod
    def launch(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        port: int,
        log_path: Path,
        book: Ledger,
        stop_signals: Sequence[signal.Signals] = SIGTERM_ALONE,
    ) -> EngineProcess:
        """Start `argv` with its output in `log_path`; the ledger knows it before this returns.

        Its temporary files go to the ledger's scratch folder, which is removed with it: SGLang leaves a dozen.
        """
        if shutil.which(argv[0]) is None:
            raise EngineMissing(f"{argv[0]}: no such program; name a Python that has SGLang with --engine-python")
        kernels = Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}"  # by default they were temporary too
        around = {**os.environ, "TMPDIR": str(book.make_scratch()), **env}
        # Last: SGLang sets it too, and where it came first its processes would not show their names (setproctitle).
        around.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels))
        popen, owned = start_owned(argv, stdin=subprocess.DEVNULL, log_path=log_path, env=around, book=book)
        return cls(popen, owned, port, log_path, book, stop_signals)

    @property
    def exit_code(self) -> int | None:
        """The leader's exit code; None while it runs."""
        return self._popen.poll()

    @property
    def log_text(self) -> str:
        """All that the engine has printed so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def pids(self) -> list[int]:
        """List the living processes of the engine."""
        return [process.pid for process in self.owned.members()]

    def listens(self) -> bool:
        """Whether the engine itself listens on its port: what answers there may be somebody else's server."""
        for process in self.owned.members():
            with contextlib.suppress(psutil.Error):
                sockets = process.net_connections("tcp")
                if any(s.status == psutil.CONN_LISTEN and s.laddr.port == self.port for s in sockets):
                    return True
        return False

    def pin(self, cpus: Sequence[int]) -> None:
        """Keep every thread of the engine on `cpus`, if there are any; threads made later inherit it."""
        if not cpus:
            return
        for process in self.owned.members():
            with contextlib.suppress(psutil.Error):
                for thread in process.threads():
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(thread.id, cpus)

    def stop(self, *, term_s: float = 30.0, must_hurry: Callable[[], bool] = lambda: False) -> StopProof:
        """End every process of the engine, wait until its port is free, and say what was seen.

        It is left `term_s` to end by itself, or less once `must_hurry`.
        """
        # Before its web server is up, only SIGTERM ends it at once.
        signals = self._stop_signals if self.listens() else SIGTERM_ALONE
        killed = ledger.end(self.owned, term_s=term_s, must_hurry=must_hurry, signals=signals)
        exit_code = self._popen.wait(timeout=10) if not self.owned.members() else self.exit_code
        self.owned.reap()  # children of a leader that was still ending became ours only now
        proof = StopProof(exit_code, killed, len(self.owned.members()), wait_port_free(self.port, limit_s=10.0))
        if proof.left == 0:
            self._ledger.clear()
        return proof


def start_owned(
    argv: Sequence[str], *, stdin: int, log_path: Path, book: Ledger, env: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Owned]:
    """Start `argv` in a session of its own that ends with us, its output in `log_path`; `book` knows it on return."""
    adopt_orphans()
    # Isolated (-I): what the engine's environment says to Python is not for the guard.
    guarded = [sys.executable, "-I", guard.__file__, str(os.getpid()), *argv]
    with log_path.open("wb") as log:
        popen = subprocess.Popen(
            guarded, stdin=stdin, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
    try:
        owned = Owned.of(popen.pid)
        book.record(owned)
    except BaseException:
        popen.kill()
        popen.wait()
        book.clear()
        raise
    return popen, owned


def adopt_orphans() -> None:
    """Become the parent of grandchildren whose parent dies, so that none stays a zombie (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could bind `port` now, by doing it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def wait_port_free(port: int, *, limit_s: float) -> bool:
    """Wait until `port` can be bound; False when it stays taken."""
    deadline = time.monotonic() + limit_s
    while not port_is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """Pick a port that is free now, and so is the one that SGLang derives from it."""
    for port in random.SystemRandom().sample(PORTS, k=len(PORTS)):
        if port_is_free(port, host) and port_is_free(port + GRPC_OFFSET, host):
            return port
    raise EngineMissing(
        f"{host}: no port of {PORTS.start}-{PORTS.stop - 1} can be bound; is this an address of this machine?"
    )
