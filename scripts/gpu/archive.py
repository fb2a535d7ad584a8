"""What a window brings out: few files, none too large, without what can be made again."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

LEFT_BEHIND = ("plans", "report.html", "running.json", ".lock")
"""Plans follow from scenario and seed, the report from the records; the others belong to a running process."""
MAX_MEMBER_BYTES = 8 * 2**20
"""An engine's log beyond this stays behind: it is the log of an engine that went wild."""
MAX_ARCHIVE_BYTES = 16 * 2**20


def archive_study(study: Path, archive: Path) -> None:
    """Write the study's folder as a tar.xz that unpacks to a folder of its name."""

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        left = Path(member.name).name in LEFT_BEHIND or member.size > MAX_MEMBER_BYTES
        return None if left else member

    with tarfile.open(archive, "w:xz", preset=2) as tar:
        tar.add(study, arcname=study.name, filter=keep)
    complain_if_large(archive)


def archive_kernels(home: Path, archive: Path) -> None:
    """Write what the engine compiled as a tar.xz, so that the next window need not wait for it."""
    with tarfile.open(archive, "w:xz", preset=2) as tar:
        tar.add(home, arcname=".")
    complain_if_large(archive)


def complain_if_large(archive: Path) -> None:
    """Warn of an archive that a metered host may not hand over."""
    size = archive.stat().st_size
    verdict = ", MORE THAN MAY COME BACK" if size > MAX_ARCHIVE_BYTES else ""
    sys.stdout.write(f"{archive.name}: {size / 2**20:.1f} MiB{verdict}\n")
