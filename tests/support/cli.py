"""Run `hicache-tune` as a user does: as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

MARKER = "HICACHE_TUNE_TEST_RUN"
"""A variable that every process of one run inherits, by which a test finds what a run has left behind."""


@dataclass
class Run:
    """A started command."""

    process: subprocess.Popen[bytes]
    marker: str
    stderr_path: Path

    def wait(self, limit_s: float) -> int:
        """Wait for the exit code; kill the run and fail when it takes longer than `limit_s`."""
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {limit_s:g} s:\n{self.said()}") from None

    def interrupt(self) -> None:
        """Press Ctrl-C once."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the harness at once, as the out-of-memory killer would."""
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        """Return what it has printed for people so far."""
        return self.stderr_path.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, seen: Callable[[], bool], limit_s: float = 90.0) -> None:
        """Wait until `seen`; fail when the run ends first or it takes too long."""
        deadline = time.monotonic() + limit_s
        while not seen():
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode} too early:\n{self.said()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"not seen within {limit_s:g} s:\n{self.said()}")
            time.sleep(0.05)

    def left_behind(self) -> list[str]:
        """List the living processes of this run other than the harness itself."""
        return carrying(self.marker, but=self.process.pid)

    def wait_nothing_left(self, limit_s: float) -> None:
        """Wait until no process of the run lives; fail with what is left."""
        deadline = time.monotonic() + limit_s
        while left := self.left_behind():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.1)


def start(arguments: Sequence[str], folder: Path) -> Run:
    """Start `hicache-tune` with `arguments` in `folder`."""
    marker = f"{os.getpid()}-{time.monotonic_ns()}"
    stderr_path = folder / f"stderr-{marker}.txt"
    with stderr_path.open("wb") as stderr, (folder / "stdout.txt").open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-c", "from tuning.cli import main; main()", *arguments],
            cwd=folder,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, MARKER: marker},
        )
    return Run(process, marker, stderr_path)


def printed_json(folder: Path) -> Any:
    """Return what the last command in `folder` printed on stdout, as JSON."""
    return json.loads((folder / "stdout.txt").read_text(encoding="utf-8"))


def carrying(marker: str, *, but: int = 0) -> list[str]:
    """List the living processes that carry `marker`, one of them left out."""
    return [_describe(p) for p in psutil.process_iter() if p.pid != but and _carries(p, marker)]


def _carries(process: psutil.Process, marker: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARKER) == marker
    except psutil.Error:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:120]}"
    except psutil.Error:
        return str(process.pid)
