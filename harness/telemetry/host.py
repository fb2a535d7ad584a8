"""How much memory the host can still give to this process, under its cgroup limits too."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.errors import TelemetryError

_NO_V1_LIMIT_BYTES = 1 << 60
"""cgroup v1 writes the largest number of pages for "no limit"."""
_RECLAIMABLE_V1 = ("total_inactive_file", "total_active_file")
_RECLAIMABLE_V2 = ("inactive_file", "active_file")


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """The memory limit of one control group and what counts against it."""

    limit_bytes: int
    used_bytes: int
    """Without the page cache, which the kernel gives back when memory is asked for."""

    @property
    def headroom_bytes(self) -> int:
        """Bytes that can still be taken before the limit; never negative."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class HostMemory:
    """One reading of the host's memory. Swap counters run since boot; None where the kernel hides them."""

    total_bytes: int
    mem_available_bytes: int
    swap_used_bytes: int
    swapped_in_bytes: int | None
    swapped_out_bytes: int | None
    cgroup: CgroupMemory | None
    """The tightest group, of this process's own and all above it; None when none has a limit."""
    mlocked_bytes: int | None = None
    """Locked by `mlock`. What CUDA pins does not show here: it lowers `mem_available_bytes` only."""
    unevictable_bytes: int | None = None

    @property
    def swapped_bytes(self) -> int | None:
        """Bytes that went to swap and back since boot, together; None where the kernel hides them."""
        if self.swapped_in_bytes is None or self.swapped_out_bytes is None:
            return None
        return self.swapped_in_bytes + self.swapped_out_bytes

    @property
    def available_bytes(self) -> int:
        """Bytes that a new host pool can take without swapping and without the cgroup's OOM killer."""
        if self.cgroup is None:
            return self.mem_available_bytes
        return min(self.mem_available_bytes, self.cgroup.headroom_bytes)

    @classmethod
    def read(cls, root: Path = Path("/")) -> HostMemory:
        """Read /proc and /sys/fs/cgroup under `root`; raise TelemetryError where there is no Linux /proc."""
        try:
            meminfo = parse_meminfo((root / "proc/meminfo").read_text())
            total_bytes, available_bytes = meminfo["MemTotal"], meminfo["MemAvailable"]
        except (OSError, KeyError, ValueError) as problem:
            raise TelemetryError(
                f"host memory cannot be read from {root / 'proc/meminfo'} ({problem!r}); run on Linux"
            ) from None
        swapped_in, swapped_out = _read_swap_counters(root)
        return cls(
            total_bytes=total_bytes,
            mem_available_bytes=available_bytes,
            swap_used_bytes=meminfo.get("SwapTotal", 0) - meminfo.get("SwapFree", 0),
            swapped_in_bytes=swapped_in,
            swapped_out_bytes=swapped_out,
            cgroup=read_cgroup_memory(root),
            mlocked_bytes=meminfo.get("Mlocked"),
            unevictable_bytes=meminfo.get("Unevictable"),
        )


def read_cgroup_memory(root: Path = Path("/")) -> CgroupMemory | None:
    """Find the limit that binds first, from this process's own group upwards; None when none has one."""
    try:
        membership = (root / "proc/self/cgroup").read_text()
    except OSError:
        return None
    limits = [
        limit
        for hierarchy, group in _memory_groups(root, membership)
        for directory in _upwards(hierarchy, group)
        if (limit := _limit_v2(directory) or _limit_v1(directory)) is not None
    ]
    return min(limits, key=lambda limit: limit.headroom_bytes, default=None)


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse /proc/meminfo into bytes by name."""
    entries = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: _kib_or_count(value.split()) for name, value in entries}


def _kib_or_count(words: list[str]) -> int:
    return int(words[0]) * (1024 if words[1:] == ["kB"] else 1)


def _parse_flat(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in text.splitlines() if line.strip())}


def _read_swap_counters(root: Path) -> tuple[int | None, int | None]:
    try:
        counters = _parse_flat((root / "proc/vmstat").read_text())
    except OSError:
        return None, None
    page_bytes = resource.getpagesize()
    pages = counters.get("pswpin"), counters.get("pswpout")
    pages_in, pages_out = (None if count is None else count * page_bytes for count in pages)
    return pages_in, pages_out


def _memory_groups(root: Path, membership: str) -> Iterator[tuple[Path, PurePosixPath]]:
    """Yield the mount point and this process's group of each hierarchy that may limit memory."""
    mount = root / "sys/fs/cgroup"
    for line in membership.splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            # Hybrid hosts mount the v2 tree beside the v1 ones.
            unified = mount / "unified"
            yield (unified if unified.is_dir() else mount), PurePosixPath(group)
        elif "memory" in controllers.split(","):
            yield mount / "memory", PurePosixPath(group)


def _upwards(hierarchy: Path, group: PurePosixPath) -> Iterator[Path]:
    # In a container the path may be the host's; of it only the mount point exists here, which has the limit.
    parts = [part for part in group.parts if part not in ("/", "..")]
    for depth in range(len(parts), -1, -1):
        directory = hierarchy.joinpath(*parts[:depth])
        if directory.is_dir():
            yield directory


def _limit_v2(directory: Path) -> CgroupMemory | None:
    # Over memory.high the kernel throttles and does not kill; pinned memory can't be reclaimed, so it binds.
    limits = [_read_int(directory / name) for name in ("memory.max", "memory.high")]
    known = [limit for limit in limits if limit is not None]
    return _against(min(known, default=None), directory, "memory.current", _RECLAIMABLE_V2)


def _limit_v1(directory: Path) -> CgroupMemory | None:
    limit = _read_int(directory / "memory.limit_in_bytes")
    unlimited = limit is None or limit >= _NO_V1_LIMIT_BYTES
    return _against(None if unlimited else limit, directory, "memory.usage_in_bytes", _RECLAIMABLE_V1)


def _against(limit: int | None, directory: Path, usage_file: str, reclaimable: tuple[str, ...]) -> CgroupMemory | None:
    usage = _read_int(directory / usage_file)
    if limit is None or usage is None:
        return None
    try:
        stat = _parse_flat((directory / "memory.stat").read_text())
    except OSError:
        stat = {}
    return CgroupMemory(limit, max(0, usage - sum(stat.get(name, 0) for name in reclaimable)))


def _read_int(path: Path) -> int | None:
    """Read one number; None when the file is missing or says `max`."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return None if text == "max" else int(text)
