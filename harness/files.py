"""Files that are either whole or absent, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from harness.errors import StoreError


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader, or a crash, sees the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StoreError(
            f"{path}: cannot be written ({problem.strerror}); free space or choose another folder"
        ) from None
