"""What pip says, as progress and as errors a user can act on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from harness.engine import guard
from harness.errors import InstallError

Report = Callable[[int, str], None]
"""Called with the number of packages that pip has got so far and what it does now."""

_GOT = re.compile(r"^(?:Collecting|Processing|Requirement already satisfied: ).*\(from -r .+ \(line \d+\)\)")
_NAME = re.compile(r"^Collecting (\S+?)==|/([A-Za-z0-9_.]+?)-[0-9][^/]*\.whl")
_DOWNLOADING = re.compile(r"^\s+Downloading (\S+) \((.+)\)")
_UNREACHABLE = (
    "Retrying (Retry(",
    "ReadTimeoutError",
    "ConnectTimeoutError",
    "Could not fetch URL",
    "SSLError",
)


def run_pip(argv: Sequence[str], *, env: dict[str, str], log_path: Path, report: Report) -> None:
    """Run pip with its output in `log_path`; raise InstallError when it fails. It ends when this process does."""
    guarded = [sys.executable, guard.__file__, str(os.getpid()), *argv]
    with (
        log_path.open("w", encoding="utf-8") as log,
        subprocess.Popen(guarded, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        try:
            for got, message in progress(_copied(process.stdout or (), log.write)):
                report(got, message)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise InstallError(explain(log_path.read_text(encoding="utf-8"), log_path))


def progress(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Turn pip's lines into (packages got so far, what it does now)."""
    got = 0
    for line in lines:
        if _GOT.match(line):
            got += 1
            name = _NAME.search(line)
            yield got, (name[1] or name[2]) if name else ""
        elif download := _DOWNLOADING.match(line):
            yield got, f"downloading {download[1]} ({download[2]})"
        elif "Retrying (Retry(" in line:
            yield got, "the package index does not answer; trying again"
        elif line.startswith("Installing collected packages"):
            yield got, "unpacking"


def explain(output: str, log_path: Path) -> str:
    """Say in one sentence why pip failed and what to do, with pip's last word."""
    last = next((line for line in reversed(output.splitlines()) if line.startswith("ERROR:")), "")
    last = last.removeprefix("ERROR: ") or next(reversed(output.strip().splitlines()), "no output")
    return f"{_reason(output)} (pip: {last}; all of it: {log_path})"


def _reason(output: str) -> str:
    if "No space left on device" in output or "[Errno 28]" in output:
        return "the disk filled up; free 3 GB in the engine's folder and 1 GB in the temporary folder"
    if "DO NOT MATCH THE HASHES" in output or re.search(r"Wheel '.*' located at .* is invalid", output):
        return "a downloaded package is damaged; run `pip cache purge` and then this command again"
    if any(sign in output for sign in _UNREACHABLE):
        return (
            "pip cannot reach its package index; check the network or proxy, or name another index or a "
            "folder of wheels with --wheel-index or HICACHE_TUNE_WHEEL_INDEX"
        )
    if "No matching distribution found" in output:
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            here = f"{platform.system()} {platform.machine()}"
            return f"a package has no wheel for {here}; the CPU engine needs Linux on x86-64"
        return "a pinned package is on none of pip's indexes; name an index that has it with --wheel-index"
    return "pip could not install the engine's packages"


def _copied(lines: Iterable[str], write: Callable[[str], object]) -> Iterator[str]:
    for line in lines:
        write(line)
        yield line
