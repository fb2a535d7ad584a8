"""Runs the load process from the harness: starts it, follows it, stops it, and reads what it wrote."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pandas as pd

from harness.errors import LoadError
from harness.files import write_atomically
from harness.load.job import JOB_FILE, LOG_FILE, OUTCOME_FILE, RECORDS_FILE, LoadJob, LoadOutcome, LoadProgress
from harness.load.record import read_records

POLL_S = 0.1
STOP_GRACE_S = 10.0
"""How long a process that was told to stop may take to write its records, before SIGKILL."""
OVERTIME_S = 60.0
"""A load process that is this far past its limit hangs."""
LAST_LINES = 8
CODE_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class LoadResult:
    """One load: how it went, and every request of it (see `harness.load.record`)."""

    outcome: LoadOutcome
    records: pd.DataFrame


def run_load(
    job: LoadJob,
    *,
    on_progress: Callable[[LoadProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    cpus: tuple[int, ...] | None = None,
) -> LoadResult:
    """Play `job` in a process of its own, pinned to `cpus`; raise LoadError when it leaves no outcome.

    `should_stop` is asked about ten times a second; a stopped load keeps its records.
    """
    job.out_dir.mkdir(parents=True, exist_ok=True)
    (job.out_dir / OUTCOME_FILE).unlink(missing_ok=True)  # an old outcome must not pass for this one
    write_atomically(job.out_dir / JOB_FILE, job.model_dump_json(indent=2))
    with (job.out_dir / LOG_FILE).open("wb") as log:
        process = _start(job, log)
        try:
            if cpus is not None:
                os.sched_setaffinity(process.pid, cpus)
            _follow(process, job, on_progress, should_stop)
        finally:
            _end(process)
    if process.returncode != 0:
        raise LoadError(_last_words(process.returncode, job.out_dir / LOG_FILE))
    return LoadResult(LoadOutcome.read(job.out_dir / OUTCOME_FILE), read_records(job.out_dir / RECORDS_FILE))


def _start(job: LoadJob, log: IO[bytes]) -> subprocess.Popen[bytes]:
    # The child runs the code of its parent: never a folder named `harness` or `locust` where the user stands (-P).
    argv = [sys.executable, "-P", "-m", "harness.load.process", str((job.out_dir / JOB_FILE).resolve())]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("LOCUST_")}
    paths = [str(CODE_ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(paths)}
    # It stops when nobody reads its progress, so it cannot outlive us. Its own session keeps Ctrl-C from it.
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
    )


def _follow(
    process: subprocess.Popen[bytes],
    job: LoadJob,
    on_progress: Callable[[LoadProgress], None],
    should_stop: Callable[[], bool],
) -> None:
    """Pass progress on until the process ends, is told to stop, or hangs."""
    deadline = time.monotonic() + job.limit_s + OVERTIME_S
    started = stopping = False
    lines = _Lines(process.stdout)
    while not lines.ended and time.monotonic() < deadline:
        for line in lines.wait(POLL_S):
            started = True
            on_progress(LoadProgress.model_validate_json(line))
        # Before its first line the process cannot handle the signal yet, and would leave no outcome.
        if started and not stopping and should_stop():
            stopping = True
            deadline = time.monotonic() + STOP_GRACE_S
            process.terminate()
    _wait_or_kill(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing behind, whatever made us leave."""
    if process.poll() is None:
        process.terminate()
        _wait_or_kill(process)
    if process.stdout is not None:
        process.stdout.close()


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_words(code: int | None, log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    return f"the load process ended with code {code} and left no outcome; see {log}: " + "\n".join(lines)


class _Lines:
    """Lines of a pipe as they come, without blocking on a slow writer."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        if pipe is None:
            raise LoadError("the load process has no stdout")
        self._fd = pipe.fileno()
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._fd, selectors.EVENT_READ)
        self.ended = False

    def wait(self, timeout_s: float) -> list[bytes]:
        """Return the lines that were completed within `timeout_s`."""
        if not self._selector.select(timeout_s):
            return []
        data = os.read(self._fd, 65536)
        if not data:
            self.ended = True
            self._selector.close()
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
