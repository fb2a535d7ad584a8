"""What all trials of one study share: the engine to launch, the devices to watch, the limits of a load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.draft import Watch
from harness.engine.api_key import api_key_headers
from harness.engine.client import EngineClient
from harness.engine.handle import Launcher
from harness.engine.hang import HANG_AFTER_S
from harness.engine.launch import ProcessLauncher
from harness.engine.ledger import Ledger
from harness.engine.memory import DeviceRoom, Learned
from harness.engine.preflight import HostRoom
from harness.engine.runtime_changes import live_changes
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.storage import StorageTier
from harness.kept import KeptEngine
from harness.load.job import ApiName, LoadJob, Rival
from harness.metrics import Slo
from harness.telemetry import HostMemory, Nvml, NvmlUnavailable, Source, Unavailable
from harness.telemetry.sources import HostSource
from scenarios.plan import Plan, write_plan

DEVICE_MEMORY_SLACK_BYTES = 256 * 2**20
MEMORY_BACK_LIMIT_S = 30.0
"""On an H200 memory came back 4-6 s after the last process had gone."""


@dataclass
class Lab:
    """The place where trials run. `learned` grows with the trials themselves."""

    root: Path
    spec: EngineSpec
    watch: Watch
    should_stop: Callable[[], bool]
    must_hurry: Callable[[], bool]
    api: ApiName
    load_limit_s: float
    warm_up_tokens: int
    device: Nvml | NvmlUnavailable
    learned: Learned = field(default_factory=Learned)
    """How far predictions of memory were off so far."""
    launcher: Launcher | None = None
    """How an engine is started; None starts a process of this machine."""
    load_processes: int = 1
    api_key_env: str | None = None
    """The environment variable with the key of an engine that asks for one."""
    session_header: str | None = None
    """A header by which a router in front of the engines keeps a session on one of them."""
    keep_storage: bool = False
    """Whether a trial may find what earlier ones have left in the storage tier."""
    hang_after_s: float = HANG_AFTER_S
    """An engine that hangs is not waited for after so long a silence under load."""
    slo_ttft_s: float | None = None
    """A load whose TTFT P99 cannot meet this any more is stopped; None lets it end."""
    slos: tuple[Slo, ...] = ()
    """The service levels that the goodput of each trial is told of."""
    rival: Rival | None = None
    """A load that is surely worse than this trial, which played the same plan, is stopped; None lets it end."""
    followed_by: Setting | None = None
    """What the next trial will measure, where the caller knows; an engine that can go on with it is kept."""
    kept: KeptEngine | None = None
    """The engine that the last trial has left for the next."""

    @property
    def ledger(self) -> Ledger:
        """The record of what runs now."""
        return Ledger(self.root / "running.json")

    @property
    def starts(self) -> Launcher:
        """How an engine is started."""
        return self.launcher or ProcessLauncher(self.spec, self.storage)

    @property
    def storage(self) -> StorageTier:
        """The storage tier of the engines that are processes of this machine."""
        return StorageTier(self.root, self.spec.around, keep=self.keep_storage)

    def empty_storage(self, setting: Setting) -> bool | None:
        """Empty the storage tier unless it is to be kept; None where the setting has none of ours."""
        return None if self.launcher else self.storage.empty(setting)

    def goes_on(self, setting: Setting) -> bool:
        """Whether an engine that runs `setting` can serve the next trial too; a storage tier is emptied without one."""
        if self.followed_by is None or self.should_stop() or self.storage.serves(setting):
            return False
        return live_changes(setting, self.followed_by.canonical()) is not None

    def take_over(self, setting: Setting) -> KeptEngine | None:
        """Hand out the kept engine, running `setting` from empty caches; at any doubt that it does, end it."""
        kept = self.kept
        if kept is None:
            return None
        with self.client(kept.launch.base_url) as client:
            if not kept.becomes(setting, client):
                self.end_kept()
                return None
        self.kept = None
        return replace(kept, launch=replace(kept.launch, command=self.starts.command(setting)))

    def end_kept(self) -> None:
        """End the engine that the last trial has left, if there is one, and wait until its memory is back."""
        kept, self.kept = self.kept, None
        if kept is None:
            return
        kept.engine.stop(term_s=self.stop_term_s(), must_hurry=self.must_hurry)
        self.wait_device_memory_back(kept.room.free_bytes if kept.room else None)

    @contextmanager
    def client(self, base_url: str) -> Iterator[EngineClient]:
        """Open a control client to the engine at `base_url`."""
        client = EngineClient(base_url, api_key_headers(self.api_key_env))
        try:
            yield client
        finally:
            client.close()

    def load_job(self, base_url: str, plan: Plan, folder: Path) -> LoadJob:
        """Describe one load; the plan of a seed (and rate) is written once and shared by all its trials."""
        rate = "" if plan.rate_per_s is None else f"-rate-{plan.rate_per_s:g}"
        plan_path = self.root / "plans" / f"seed-{plan.seed}{rate}.jsonl"
        if not plan_path.exists():
            plan_path.parent.mkdir(parents=True, exist_ok=True)
            part = plan_path.with_suffix(".part")  # a cut-off write must not pass for the plan
            write_plan(plan, part)
            part.replace(plan_path)
        return LoadJob(
            base_url=base_url,
            api=self.api,
            model=self.spec.model,
            plan_path=plan_path,
            out_dir=folder,
            limit_s=self.load_limit_s,
            absent_cache_means_zero=True,
            api_key_env=self.api_key_env,
            processes=self.load_processes,
            session_header=self.session_header,
            slo_ttft_s=self.slo_ttft_s,
            rival=self.rival,
        )

    def stop_term_s(self) -> float:
        """How long an engine may take to end by itself; a second Ctrl-C shortens it."""
        return 1.0 if self.must_hurry() else 30.0

    def host_room(self) -> HostRoom:
        """Read how much host memory a launch can count on."""
        memory = HostMemory.read()
        return HostRoom(memory.available_bytes, memory.total_bytes, self.spec.host_reserve_bytes)

    @property
    def host(self) -> Source[HostMemory]:
        """Where the host memory of the engine is read: nowhere when it runs on another machine."""
        return HostSource() if self.spec.near else Unavailable("the engine runs on another machine")

    @property
    def devices_name(self) -> str:
        """Name what the engine computes on: the UUIDs of its GPUs, or `cpu`."""
        return "+".join(gpu.uuid for gpu in self.device.devices) if isinstance(self.device, Nvml) else self.spec.device

    def device_room(self) -> DeviceRoom | None:
        """Read size and free memory of the fullest device in use; None without NVML, or when the engine is not ours."""
        if not self.spec.here:
            return None
        reading = self.device.read()
        if isinstance(reading, Unavailable):
            return None
        return DeviceRoom(min(gpu.total_bytes for gpu in reading.gpus), reading.free_bytes)

    def device_free_bytes(self) -> int | None:
        """Read the free memory of the fullest device in use; None without NVML."""
        reading = self.device.read()
        return None if isinstance(reading, Unavailable) else reading.free_bytes

    def wait_device_memory_back(self, idle_free_bytes: int | None) -> bool | None:
        """Wait until the devices are as free as before the launch; None when one of the two is not known."""
        deadline = time.monotonic() + MEMORY_BACK_LIMIT_S
        while idle_free_bytes is not None and (free := self.device_free_bytes()) is not None:
            if free >= idle_free_bytes - DEVICE_MEMORY_SLACK_BYTES:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return None
