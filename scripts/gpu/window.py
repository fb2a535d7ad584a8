"""One metered window on an offline GPU host: unpack, search as long as time allows, bring everything out, and end.

`python3 -m scripts.gpu.window BUNDLE OUT --study NAME --seconds 585 -- flags of hicache-tune search`

BUNDLE holds what `scripts.gpu.pack` made and, after the first window, the kernels.tar.xz that it brought out. The
study goes on when results/NAME is there. Needs nothing but Python's own library until the harness is unpacked.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.gpu.archive import archive_kernels, archive_study
from scripts.gpu.host import KERNELS, REPOSITORY, Host

STOP_S = 50.0
"""An interrupted trial stops its load (10 s at most) and its engine (30 s at most) and writes the report."""
COLLECT_S = 15.0
MEMORY_LIMIT_S = 20.0
"""Memory that has not grown by so long after the unpacking is not waited for."""
SLACK_S = 10.0
"""The budget ends this much before a trial would be interrupted: trials differ in length."""
ENGINE_FLAGS = (
    "--load-format=dummy",
    "--attention-backend=triton",
    "--sampling-backend=pytorch",
    "--grammar-backend=none",
    "--cuda-graph-backend-prefill=disabled",
    "--cuda-graph-max-bs-decode=64",
)
"""What an engine without weights and without FA3 needs, and no compilation of kernels that the load never runs."""


class Clock:
    """What is left of the window."""

    def __init__(self, seconds: float) -> None:
        self._started, self._seconds = time.monotonic(), seconds

    @property
    def left_s(self) -> float:
        """Seconds until the window closes."""
        return self._seconds - (time.monotonic() - self._started)

    def say(self, text: str) -> None:
        """Print `text` with the time."""
        sys.stdout.write(f"[{time.monotonic() - self._started:6.1f} s] {text}\n")
        sys.stdout.flush()


def main() -> int:
    """Run the window and return the exit code of the search."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a window that is cut still stops and collects
    options = parse(sys.argv[1:])
    clock, host = Clock(options.seconds), Host(Path.home() / "hicache-gpu")
    study = REPOSITORY / "results" / options.study
    code = 1
    try:
        with growing_memory(options.host_memory_gib):
            host.unpack(options.bundle)
            clock.say("unpacked")
            environment = host.harness_variables()
            subprocess.run([sys.executable, "-m", "scripts.gpu.check"], env=environment, cwd=REPOSITORY, check=True)
        clock.say("checked")
        command = search_command(host, study, options.search, budget_s=clock.left_s - STOP_S - COLLECT_S - SLACK_S)
        code = run_until(clock, command, environment)
        clock.say(f"the search ended with code {code}")
    finally:
        collect(host, study, options.out)
        clock.say("collected")
    return code


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line: what stands behind `--` is for the search."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="folder with engine.tar.xz, harness.tar.xz and model/")
    parser.add_argument("out", type=Path, help="folder that comes back from the host")
    parser.add_argument("--study", required=True)
    parser.add_argument("--seconds", type=float, required=True, help="length of the window")
    parser.add_argument("--host-memory-gib", type=int, default=64, help="memory that a growing machine must show")
    options = parser.parse_args(arguments[:split])
    options.search = arguments[split + 1 :]
    return options


def search_command(host: Host, study: Path, flags: list[str], *, budget_s: float) -> list[str]:
    """Build the command of the search, which goes on with a study that is there."""
    program = [sys.executable, "-c", "from tuning.cli import main; main()", "search"]
    engine = ["--engine", "local", "--engine-python", str(host.engine_python), "--model", str(host.model)]
    fixed = [f"--engine-arg={flag}" for flag in ENGINE_FLAGS]
    kept = ["--results", str(study.parent), "--study", study.name, "--budget", f"{max(1, round(budget_s))}s"]
    resumed = ["--resume"] if (study / "study.json").exists() else []
    return [*program, *engine, *fixed, *kept, *resumed, *flags]


def run_until(clock: Clock, command: list[str], environment: dict[str, str]) -> int:
    """Run `command`; ask it to stop when the window closes, and insist when it does not."""
    process = subprocess.Popen(command, env=environment, cwd=REPOSITORY)
    for wait_s, then in (
        (clock.left_s - STOP_S - COLLECT_S, signal.SIGTERM),
        (STOP_S / 2, signal.SIGTERM),
        (STOP_S / 2, signal.SIGKILL),
    ):
        try:
            return process.wait(max(0.0, wait_s))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            clock.say(f"the window closes: {then.name}")
            process.send_signal(then)
    return process.wait()


@contextlib.contextmanager
def growing_memory(wanted_gib: int) -> Iterator[None]:
    """Let the host's memory grow while something else is done; its fill ends with the block at the latest."""
    process = subprocess.Popen([sys.executable, "-m", "scripts.gpu.memory", str(wanted_gib)], cwd=REPOSITORY)
    try:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(MEMORY_LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def collect(host: Host, study: Path, out: Path) -> None:
    """Write study and compiled kernels into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    if study.exists():
        archive_study(study, out / f"{study.name}.tar.xz")
    if host.engine_home.exists():
        archive_kernels(host.engine_home, out / KERNELS)


if __name__ == "__main__":
    sys.exit(main())
