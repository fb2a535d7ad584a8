"""Host memory that grows only when it is used: `python3 -m scripts.gpu.memory GIB` makes it grow before it counts.

Some rented machines show a part of their memory and add to it under pressure. SGLang and our preflight size a host
pool by what is shown, and would refuse one that the machine can hold. Memory that was used once stays shown, so it is
used here, in a process that the kernel would end first, and then given back. Where all is shown, nothing is done.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path

GIB = 2**30
PAGE_BYTES = 4096
MARGIN_BYTES = GIB // 2
"""Left untouched until the machine has grown: less than this free, and the next step waits."""
STEP_BYTES = GIB // 4
PATIENCE_S = 3.0
"""A machine that shows nothing more for so long has no more."""


def main() -> None:
    """Grow to the GiB named on the command line and say what the machine shows before and after."""
    wanted = int(sys.argv[1]) * GIB
    before, started = shown_bytes(), time.monotonic()
    if before < wanted:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        grow(wanted)
    sys.stdout.write(
        f"host memory: {before / GIB:.1f} GiB shown, {shown_bytes() / GIB:.1f} GiB after "
        f"{time.monotonic() - started:.0f} s (wanted {wanted / GIB:.0f})\n"
    )


def grow(wanted_bytes: int) -> None:
    """Use memory until `wanted_bytes` are shown in all, or until the machine stops growing."""
    held: list[mmap.mmap] = []
    progress = time.monotonic()
    while shown_bytes() < wanted_bytes and time.monotonic() - progress < PATIENCE_S:
        if meminfo_bytes("MemAvailable") < MARGIN_BYTES + STEP_BYTES:
            time.sleep(0.05)
            continue
        held.append(used_block())
        progress = time.monotonic()


def used_block() -> mmap.mmap:
    """Take one step of memory and write to each of its pages."""
    block = mmap.mmap(-1, STEP_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[::PAGE_BYTES] = bytes([1]) * (STEP_BYTES // PAGE_BYTES)
    return block


def shown_bytes() -> int:
    """Return the memory that the system shows in all."""
    return meminfo_bytes("MemTotal")


def meminfo_bytes(name: str) -> int:
    """Return one entry of /proc/meminfo."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
