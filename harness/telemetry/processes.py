"""What the kernel tells of single processes beyond what psutil reads: page faults, locked memory, NUMA placement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
NODES = Path("/sys/devices/system/node")
MAJOR_FAULTS_FIELD = 9
"""Of /proc/PID/stat, counted behind the name of the command, which may hold spaces."""
NUMA_PAGES = re.compile(r"\bN(\d+)=(\d+)")
PAGE_KIB = re.compile(r"\bkernelpagesize_kB=(\d+)")


def major_faults(pids: Iterable[int], proc: Path = PROC) -> int | None:
    """Add up the pages that these processes waited for a disk to bring; None when none of them tells."""
    known = [int(text.rpartition(")")[2].split()[MAJOR_FAULTS_FIELD]) for text in _texts(pids, "stat", proc)]
    return sum(known) if known else None


def locked_bytes(pids: Iterable[int], proc: Path = PROC) -> int | None:
    """Add up the memory that these processes have locked (VmLck) or pinned (VmPin); None when none of them tells."""
    texts = _texts(pids, "status", proc)
    found = [line.split() for text in texts for line in text.splitlines() if line.startswith(("VmLck:", "VmPin:"))]
    return sum(int(words[1]) * 1024 for words in found) if found else None


def numa_bytes(pids: Iterable[int], proc: Path = PROC, nodes: Path = NODES) -> dict[int, int] | None:
    """Add up the memory of these processes by NUMA node; None on a machine of one node, or when none of them tells.

    The kernel walks all pages of a process for it and holds up what it allocates meanwhile, so it is not for a load.
    Pages that processes share count once for each of them.
    """
    if len(list(nodes.glob("node[0-9]*"))) < 2:
        return None
    found: Counter[int] = Counter()
    for line in (line for text in _texts(pids, "numa_maps", proc) for line in text.splitlines()):
        if (page := PAGE_KIB.search(line)) is None:
            continue
        for node, pages in NUMA_PAGES.findall(line):
            found[int(node)] += int(pages) * int(page[1]) * 1024
    return dict(sorted(found.items())) or None


def _texts(pids: Iterable[int], name: str, proc: Path) -> list[str]:
    """Read one file of each process that still runs and may be read."""
    found = []
    for pid in pids:
        try:
            found.append((proc / str(pid) / name).read_text())
        except OSError:
            continue
    return [text for text in found if text]
