"""Host memory under fake /proc and /sys/fs/cgroup trees."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from harness.errors import TelemetryError
from harness.telemetry import HostMemory
from harness.telemetry.host import CgroupMemory, parse_meminfo, read_cgroup_memory

GIB = 1 << 30
MEMINFO = """MemTotal:       33554432 kB
MemFree:         1048576 kB
MemAvailable:   20971520 kB
SwapTotal:       2097152 kB
SwapFree:        1048576 kB
HugePages_Total:       7
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """Write a tree of small files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(group: str, *, limit: str, used: int, cache: int = 0, high: str = "max") -> dict[str, str]:
    """Write the files of one cgroup v2."""
    folder = f"sys/fs/cgroup{group}"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.high": f"{high}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\nfile {cache + 77}\nshmem 77\ninactive_file {cache}\nactive_file 0\n",
    }


def v1(group: str, *, limit: int, used: int, cache: int = 0) -> dict[str, str]:
    """Write the files of one cgroup v1."""
    folder = f"sys/fs/cgroup/memory{group}"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": f"cache 1\ninactive_file 1\ntotal_inactive_file {cache}\ntotal_active_file 0\n",
    }


def test_without_a_cgroup_the_kernel_says_what_is_available(tmp_path: Path) -> None:
    """MemAvailable counts, swap is used minus free, and vmstat pages become bytes."""
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/vmstat": "pgfault 1\npswpin 3\npswpout 4\n"})
    memory = HostMemory.read(root)
    page_bytes = resource.getpagesize()
    assert memory == HostMemory(32 * GIB, 20 * GIB, GIB, 3 * page_bytes, 4 * page_bytes, None)
    assert memory.available_bytes == 20 * GIB


def test_the_cgroup_limit_binds_when_it_is_tighter(tmp_path: Path) -> None:
    """Page cache does not count against the limit, shared memory does."""
    files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/app\n"}
    root = write(tmp_path, files | v2("/app", limit=str(8 * GIB), used=6 * GIB, cache=5 * GIB))
    memory = HostMemory.read(root)
    assert memory.cgroup == CgroupMemory(limit_bytes=8 * GIB, used_bytes=1 * GIB)
    assert memory.available_bytes == 7 * GIB


def test_the_tightest_group_above_binds(tmp_path: Path) -> None:
    """A roomy or unlimited group inside a full slice has the slice's headroom."""
    files = (
        v2("/slice/app", limit="max", used=GIB)
        | v2("/slice", limit=str(4 * GIB), used=3 * GIB)
        | v2("", limit=str(30 * GIB), used=3 * GIB)
    )
    root = write(tmp_path, {"proc/self/cgroup": "0::/slice/app\n"} | files)
    assert read_cgroup_memory(root) == CgroupMemory(4 * GIB, 3 * GIB)


def test_the_throttling_limit_binds_too(tmp_path: Path) -> None:
    """memory.high below memory.max is the limit that pinned memory meets first."""
    files = v2("/app", limit=str(8 * GIB), used=GIB, high=str(2 * GIB))
    root = write(tmp_path, {"proc/self/cgroup": "0::/app\n"} | files)
    assert read_cgroup_memory(root) == CgroupMemory(2 * GIB, GIB)


def test_v1_limits_and_hybrid_hosts(tmp_path: Path) -> None:
    """The memory controller of v1 counts beside an empty v2 tree; the largest number means no limit."""
    membership = "9:name=systemd:/\n4:memory:/jobs/7\n1:cpu,cpuacct:/\n0::/\n"
    files = v1("/jobs/7", limit=6 * GIB, used=3 * GIB, cache=GIB) | v1("", limit=9223372036854771712, used=9 * GIB)
    root = write(tmp_path, {"proc/self/cgroup": membership, "sys/fs/cgroup/unified/cgroup.procs": ""} | files)
    assert read_cgroup_memory(root) == CgroupMemory(6 * GIB, 2 * GIB)


@pytest.mark.parametrize("membership", ["4:memory:/docker/abc\n", "0::/../../docker/abc\n"])
def test_in_a_container_the_mount_point_carries_the_limit(tmp_path: Path, membership: str) -> None:
    """The path of the host does not exist inside; walking up ends at the mount, which is the container's group."""
    files = v1("", limit=6 * GIB, used=GIB) | v2("", limit=str(6 * GIB), used=GIB)
    assert read_cgroup_memory(write(tmp_path, {"proc/self/cgroup": membership} | files)) == CgroupMemory(6 * GIB, GIB)


def test_a_group_over_its_limit_has_no_headroom() -> None:
    """Headroom is never negative."""
    assert CgroupMemory(limit_bytes=5, used_bytes=9).headroom_bytes == 0


def test_no_limit_anywhere_is_no_cgroup(tmp_path: Path) -> None:
    """An unlimited group, or no cgroup at all, is None."""
    assert read_cgroup_memory(tmp_path) is None
    unlimited = v2("/app", limit="max", used=GIB) | v1("/app", limit=9223372036854771712, used=GIB)
    root = write(tmp_path, {"proc/self/cgroup": "4:memory:/app\n0::/app\n"} | unlimited)
    assert read_cgroup_memory(root) is None


def test_swap_counters_that_the_kernel_hides_are_unknown(tmp_path: Path) -> None:
    """A sandbox without /proc/vmstat does not swap zero bytes; nobody knows."""
    memory = HostMemory.read(write(tmp_path, {"proc/meminfo": MEMINFO}))
    assert (memory.swapped_in_bytes, memory.swapped_out_bytes) == (None, None)


@pytest.mark.parametrize("meminfo", [None, "MemTotal: 5 kB\n", "MemTotal: many kB\n"])
def test_a_host_without_meminfo_is_an_error(tmp_path: Path, meminfo: str | None) -> None:
    """Missing or damaged meminfo raises one sentence that names the file."""
    if meminfo is not None:
        write(tmp_path, {"proc/meminfo": meminfo})
    with pytest.raises(TelemetryError, match=r"proc/meminfo.*run on Linux"):
        HostMemory.read(tmp_path)


def test_meminfo_has_sizes_and_counts() -> None:
    """Lines in kB become bytes; counts stay as they are."""
    assert parse_meminfo(MEMINFO)["MemFree"] == GIB
    assert parse_meminfo(MEMINFO)["HugePages_Total"] == 7


def test_this_host_can_be_read() -> None:
    """The real /proc gives a sane reading."""
    memory = HostMemory.read()
    assert 0 < memory.available_bytes <= memory.mem_available_bytes <= memory.total_bytes


def test_locked_memory_of_the_host_is_told_or_unknown(tmp_path: Path) -> None:
    """Mlocked and Unevictable are bytes; a kernel that does not have them is not zero."""
    root = write(tmp_path, {"proc/meminfo": MEMINFO + "Unevictable:  12 kB\nMlocked:  8 kB\n"})
    assert (HostMemory.read(root).mlocked_bytes, HostMemory.read(root).unevictable_bytes) == (8192, 12288)
    write(tmp_path, {"proc/meminfo": MEMINFO})
    assert HostMemory.read(root).mlocked_bytes is None
