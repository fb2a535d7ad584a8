"""One measurement at a time: for each study, and for the same devices."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from scenarios.errors import ConfigError


class Busy(ConfigError):
    """Raised when another measurement is under way; the user waits for it."""


@contextmanager
def alone(root: Path, devices: str) -> Iterator[None]:
    """Search alone: one at a time for each study, and one for the same devices, as two would disturb each other.

    Raises Busy when another one is under way.
    """
    shared = Path(tempfile.gettempdir()) / f"hicache-tune-{os.getuid()}-{devices}.lock"
    taken = {
        root / ".lock": f"another hicache-tune works on the study in {root}; wait for it or choose another --study",
        shared: f"another hicache-tune measures on {devices} of this machine; wait for it, as both would be disturbed",
    }
    with ExitStack() as held:
        for path, sentence in taken.items():
            try:
                held.enter_context(FileLock(path, blocking=False))
            except Timeout:
                raise Busy(sentence) from None
        yield
