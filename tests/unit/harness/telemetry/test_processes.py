"""What the kernel's files say of processes, from files of our making and of this process."""

from __future__ import annotations

import os
from pathlib import Path

from harness.telemetry.machine import MachineCpu
from harness.telemetry.processes import locked_bytes, major_faults, numa_bytes

STAT = "7 (sglang::sched (0)) S 1 7 7 0 -1 4194560 900 17 42 5 100 50 0 0 20 0 1 0 9 9 9"
STATUS = "Name:\tsglang\nVmLck:\t     100 kB\nVmPin:\t      28 kB\nVmRSS:\t    9999 kB\n"
NUMA_MAPS = """7f00 default anon=512 dirty=512 N0=256 N1=256 kernelpagesize_kB=4
7f20 default file=/lib/x.so mapped=10 N1=10 kernelpagesize_kB=4
7f30 default huge anon=2 N0=2 kernelpagesize_kB=2048
7f40 default
"""


def proc(root: Path, **files: str) -> Path:
    """Write the files of process 7."""
    (root / "7").mkdir()
    for name, text in files.items():
        (root / "7" / name).write_text(text)
    return root


def nodes(root: Path, count: int) -> Path:
    """Make a machine of so many NUMA nodes."""
    for number in range(count):
        (root / f"node{number}").mkdir()
    return root


def test_major_faults_are_behind_a_name_with_spaces(tmp_path: Path) -> None:
    """The field counts from the last bracket; a process that is gone does not count."""
    assert major_faults([7, 8], proc(tmp_path, stat=STAT)) == 42
    assert major_faults([8], tmp_path) is None


def test_locked_and_pinned_memory_add_up(tmp_path: Path) -> None:
    """Both are in kB; without either line nothing is known."""
    assert locked_bytes([7, 8], proc(tmp_path, status=STATUS)) == 128 * 1024
    (tmp_path / "7/status").write_text("Name:\tkernel thread\n")
    assert locked_bytes([7], tmp_path) is None


def test_memory_is_placed_by_node_and_page_size(tmp_path: Path) -> None:
    """Small and huge pages count by their size; a machine of one node has no placement."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys").mkdir()
    found = proc(tmp_path / "proc", numa_maps=NUMA_MAPS)
    two = nodes(tmp_path / "sys", 2)
    assert numa_bytes([7, 8], found, two) == {0: 256 * 4096 + 2 * 2**21, 1: 266 * 4096}
    (two / "node1").rmdir()
    assert numa_bytes([7], found, two) is None


def test_this_process_can_be_read() -> None:
    """On a real kernel the fields are where they are looked for."""
    faults, locked = major_faults([os.getpid()]), locked_bytes([os.getpid()])
    assert faults is not None
    assert 0 <= faults < 10**6
    assert locked is not None


def test_the_machine_is_at_least_as_busy_as_we_are() -> None:
    """Our own seconds are a part of those of all cores, and time goes on."""
    before = MachineCpu.read()
    sum(range(3_000_000))
    after = MachineCpu.read()
    assert after.harness_cpu_s > before.harness_cpu_s
    assert after.busy_s >= before.busy_s
    assert after.busy_s > after.harness_cpu_s - before.harness_cpu_s
