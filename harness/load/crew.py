"""Several processes that play one load: Locust workers, led by the load process as their master.

They speak over loopback. The master says when the load starts, on the clock that all processes of a host share, hears
how it goes, and says when it ends. A worker that dies ends the load, and no worker outlives the master.

Imports Locust, and so belongs to the load processes alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
from locust.env import Environment
from locust.runners import MasterRunner

from harness.engine import guard
from harness.errors import LoadError
from harness.load.job import JOB_FILE, LoadJob, LoadProgress, Stopped
from harness.load.lookout import Lookout
from harness.load.report import Report
from harness.load.stage import REPORT_S, TICK_S

HOST = "127.0.0.1"
READY, BEGIN, REPORT, STOP = "load_ready", "load_begin", "load_report", "load_stop"
START_LIMIT_S = 60.0
FINISH_LIMIT_S = 60.0
"""How long a worker may take to write its records."""
HEAD_START_S = 0.2
"""How far ahead the start is set, so that every worker knows of it in time."""


class Crew:
    """The workers of one load. `stopped` says why it is over."""

    def __init__(self, job: LoadJob, lookout: Lookout, processes: int) -> None:
        self.stopped: Stopped | None = None
        self.started_ns = 0
        self._job = job
        self._lookout = lookout
        self._processes = processes
        self._ready: set[int] = set()
        self._inbox: deque[tuple[int, Report]] = deque()
        self._workers: list[subprocess.Popen[bytes]] = []

    def play(self, tell: Callable[[LoadProgress], bool]) -> Stopped:
        """Play the load to its end and return why it ended; raise LoadError when a worker fails.

        `tell` is given the progress every second, and says whether anybody still listens.
        """
        with self._led() as runner:
            self._wait_for_all()
            self.started_ns = time.monotonic_ns() + round(HEAD_START_S * 1e9)
            runner.send_message(BEGIN, {"started_ns": self.started_ns})
            why = self._watch(tell)
            runner.send_message(STOP, {"why": why.value})
            self._wait_for_the_end()
            self._hear()
            tell(self._lookout.progress(time.monotonic_ns()))
        return why

    def stop(self) -> None:
        """End the load before its time."""
        self.stopped = self.stopped or Stopped.INTERRUPTED

    @contextmanager
    def _led(self) -> Iterator[MasterRunner]:
        runner = Environment().create_master_runner(HOST, 0)
        runner.register_message(READY, lambda msg, **_: self._ready.add(msg.data["process"]))
        runner.register_message(REPORT, self._on_report)
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, self.stop)
        try:
            for index in range(self._processes):
                self._workers.append(self._start(index, runner.server.port))
            yield runner
        finally:
            for worker in self._workers:
                if worker.poll() is None:
                    worker.kill()
                    worker.wait()
            runner.quit()

    def _start(self, index: int, port: int) -> subprocess.Popen[bytes]:
        # The guard has the kernel send SIGTERM when this process dies. Stdout is the progress of the master alone.
        tied = [sys.executable, "-I", str(Path(guard.__file__)), str(os.getpid())]
        job_file = str((self._job.out_dir / JOB_FILE).resolve())
        worker = [sys.executable, "-P", "-m", "harness.load.worker", job_file]
        numbers = [str(index), str(self._processes), str(port)]
        return subprocess.Popen([*tied, *worker, *numbers], stdin=subprocess.DEVNULL, stdout=sys.stderr)

    def _on_report(self, msg: Any, **_: object) -> None:
        self._inbox.append((msg.data["process"], Report.unpacked(msg.data["report"])))

    def _wait_for_all(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while len(self._ready) < self._processes:
            self._check_workers()
            if time.monotonic() > deadline:
                raise LoadError(
                    f"only {len(self._ready)} of {self._processes} load processes started within {START_LIMIT_S:g} s; "
                    "give them more cores, or ask for fewer with --load-processes"
                )
            time.sleep(TICK_S)

    def _watch(self, tell: Callable[[LoadProgress], bool]) -> Stopped:
        """Wait until the load is over, telling how it goes."""
        end_ns = self.started_ns + round(self._job.limit_s * 1e9)
        tell_ns = 0
        while self.stopped is None:
            self._check_workers()
            now_ns = time.monotonic_ns()
            if self._hear():
                self.stopped = self.stopped or self._lookout.why_stop(now_ns)
            if now_ns >= end_ns:
                self.stopped = self.stopped or Stopped.LIMIT
            if now_ns >= tell_ns:
                tell_ns = now_ns + round(REPORT_S * 1e9)
                if not tell(self._lookout.progress(now_ns)):
                    self.stop()
            time.sleep(TICK_S)
        return self.stopped

    def _hear(self) -> bool:
        """Take the reports that have come; False when there is none."""
        heard = bool(self._inbox)
        while self._inbox:
            self._lookout.hear(*self._inbox.popleft())
        return heard

    def _check_workers(self) -> None:
        for number, worker in enumerate(self._workers, start=1):
            if code := worker.poll():
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise LoadError(
                    f"load process {number} of {self._processes} {how} in the middle of the load, so its requests are "
                    "lost; run the load again"
                )

    def _wait_for_the_end(self) -> None:
        deadline = time.monotonic() + FINISH_LIMIT_S
        while any(worker.poll() is None for worker in self._workers):
            if time.monotonic() > deadline:
                raise LoadError(f"a load process did not write its records within {FINISH_LIMIT_S:g} s")
            time.sleep(TICK_S)
        self._check_workers()
