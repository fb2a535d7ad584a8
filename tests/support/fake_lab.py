"""A laboratory whose engine is `fake_engine`, with an impatient client and a host of our making."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.engine.client import EngineClient
from harness.engine.preflight import HostRoom
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.lab import Lab
from tests.support import fake_engine
from tests.support.recordings import METRICS


@dataclass(frozen=True)
class FakeSpec(EngineSpec):
    """An engine that needs no SGLang."""

    def argv(self, setting: Setting, port: int) -> list[str]:
        """Launch the stand-in with the setting's flags, which it passes over."""
        return [str(self.python), fake_engine.__file__, "--port", str(port), *self.base_flags, *setting.flags()]


class Impatient(EngineClient):
    """Does not wait for half a minute."""

    def flush_cache(self, *, limit_s: float = 0.3, pause_s: float = 0.02) -> int:
        """Flush as the real one does."""
        return super().flush_cache(limit_s=limit_s, pause_s=pause_s)


@dataclass
class FakeLab(Lab):
    """A lab with an impatient client and a host of our making."""

    room: HostRoom = HostRoom(200 * 10**9, 200 * 10**9)  # noqa: RUF009 - frozen

    @contextmanager
    def client(self, base_url: str) -> Iterator[EngineClient]:
        """Open the impatient client."""
        client = Impatient(base_url)
        yield client
        client.close()

    def host_room(self) -> HostRoom:
        """Tell the host's memory."""
        return self.room

    def stop_term_s(self) -> float:
        """Wait for the child that ignores SIGTERM only briefly."""
        return 0.2


def write_metrics(folder: Path) -> Path:
    """Write the recorded scrape that the fake engine answers with, its counters raised by what it has served."""
    path = folder / "metrics.txt"
    path.write_bytes(gzip.decompress((METRICS / "cpu-0.5.15/hicache_ps1.txt.gz").read_bytes()))
    return path
