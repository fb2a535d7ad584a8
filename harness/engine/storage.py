"""The storage tier below host memory: a folder of our own for SGLang's `file` backend, empty when a trial starts.

`/flush_cache` empties device and host tier only, so KV of one trial would be found by the next. SGLang's own
`/hicache/storage-backend/clear` empties whatever the backend points to, even what is somebody else's: it is never
called. Other backends than `file` keep what they have; a trial that finds any of it did not start cold, and is invalid.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.engine.rewrites import value_of
from harness.engine.setting import PLAIN, Setting
from harness.engine.surroundings import Surroundings
from harness.errors import ConfigError, StoreError

STORAGE_FOLDER_VARIABLE = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
"""Where SGLang's `file` backend keeps its pages; by default in a folder that all its servers of a machine share."""
STORAGE_LEAST_BYTES = 20 * 10**9
DISK_KEEP_FREE = 0.05


@dataclass(frozen=True)
class StorageTier:
    """The storage tier of one study."""

    study: Path
    around: Surroundings = PLAIN
    env: Mapping[str, str] | None = None
    """The user's environment, which may name a folder on a faster disk; None is this process's own."""
    keep: bool = False
    """Whether a trial may find what earlier ones have stored."""

    @property
    def folder(self) -> Path:
        """The folder: in the study, or in one of its own within that which the user has named."""
        named = (os.environ if self.env is None else self.env).get(STORAGE_FOLDER_VARIABLE)
        if not named:
            return self.study / "storage"
        study = str(self.study.absolute())
        return Path(named) / f"hicache-tune-{self.study.name}-{hashlib.sha256(study.encode()).hexdigest()[:8]}"

    def serves(self, setting: Setting) -> bool:
        """Whether `setting` runs the `file` backend."""
        return setting.hicache and value_of(setting, self.around, "hicache-storage-backend") == "file"

    def variables(self, setting: Setting) -> dict[str, str]:
        """Return what a launch of `setting` adds to the engine's environment."""
        return {STORAGE_FOLDER_VARIABLE: str(self.folder.absolute())} if self.serves(setting) else {}

    def check_room(self, *, needed_bytes: int = STORAGE_LEAST_BYTES) -> None:
        """Raise ConfigError when the disk below the folder, which need not exist yet, has too little room."""
        existing = next(path for path in (self.folder, *self.folder.absolute().parents) if path.is_dir())
        disk = shutil.disk_usage(existing)
        free = max(0, disk.free - int(DISK_KEEP_FREE * disk.total))
        if needed_bytes > free:
            raise ConfigError(
                f"--hicache-storage-backend file: {self.folder} has {free / 1e9:.1f} GB to give away and "
                f"{needed_bytes / 1e9:.1f} GB are needed; free space or name another folder in "
                f"{STORAGE_FOLDER_VARIABLE}"
            )

    def empty(self, setting: Setting) -> bool | None:
        """Remove all that is stored, and say whether it was; None for a setting that stores nothing here."""
        if not self.serves(setting):
            return None
        if self.keep:
            return False
        try:
            shutil.rmtree(self.folder)
        except FileNotFoundError:
            pass
        except OSError as problem:
            raise StoreError(
                f"{self.folder}: the storage tier cannot be emptied ({problem.strerror}); make it writable, or keep it "
                "with --keep-storage"
            ) from None
        return True
