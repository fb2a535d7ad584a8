"""An engine that a trial leaves running because the next one can go on with it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.engine.client import EngineClient
from harness.engine.effective import differences
from harness.engine.failure import EngineLost
from harness.engine.handle import EngineHandle, LaunchPlan
from harness.engine.memory import DeviceRoom, MemoryForecast
from harness.engine.runtime_changes import as_running, live_changes
from harness.engine.setting import Setting
from harness.errors import EngineUnreachable


@dataclass(frozen=True)
class KeptEngine:
    """A ready engine, and what was known before its launch."""

    engine: EngineHandle
    launch: LaunchPlan
    setting: Setting
    """What it runs, canonical."""
    forecast: MemoryForecast | None
    room: DeviceRoom | None

    def becomes(self, setting: Setting, client: EngineClient) -> bool:
        """Make it run `setting` from empty caches; False at any doubt that it does, and then it is good for nothing."""
        changes = live_changes(self.setting, setting)
        if changes is None or self.engine.exit_code is not None:
            return False
        try:
            client.flush_cache()  # refused while anything of the last load is in flight
            if changes:
                client.change(changes)
            told = as_running(client.server_info())
        except (EngineLost, EngineUnreachable):
            return False
        return not any(differences(setting, told))
