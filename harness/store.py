"""Measurements on disk: one folder a trial, immutable once written.

trials/0003-search/
    trial.json          the record below
    requests.parquet    every request (harness.load.record)
    samples.parquet     memory and queue over time (harness.telemetry)
    metrics_before.txt, metrics_after.txt, engine.log, load.json, load.log

History of the format (`schema_version` of trial.json):
    1  first version
    2  purposes `compare` and `stress`, outcome `surely worse` with `lost`
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from harness.engine.failure import Blame, Failure
from harness.engine.memory import MemoryForecast, SeenMemory
from harness.engine.process import StopProof
from harness.engine.setting import Setting
from harness.errors import ConfigError, StoreError
from harness.files import write_atomically
from harness.load.job import ClientHealth, Lost
from harness.load_conditions import LoadConditions
from harness.reload_cost import ReloadCost
from harness.summary import Summary
from harness.telemetry import CacheDelta, Headroom
from scenarios.strict import StrictModel

SCHEMA_VERSION = 2
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: lambda record: record}
"""From version N to N + 1; a reader applies them one after the other."""

TRIAL_FILE = "trial.json"
REQUESTS_FILE = "requests.parquet"
SAMPLES_FILE = "samples.parquet"
ENGINE_LOG_FILE = "engine.log"

Purpose = Literal["search", "confirm", "limit", "compare", "stress"]
"""Why a trial is run: only those of `search` are proposals, and only they are told to the sampler."""


class Outcome(enum.StrEnum):
    """How a trial ended."""

    MEASURED = "measured"
    NOT_SUSTAINABLE = "not sustainable"
    """The load did not reach a steady state or did not end in time; its P99 is never compared."""
    SURELY_WORSE = "surely worse"
    """Stopped early: over the sessions played so far it was surely worse than the best. Its P99 is never compared."""
    INVALID = "invalid"
    """The measurement is at fault, not the setting: the client was the bottleneck, or the start was not cold."""
    FAILED = "failed"
    """The engine refused, crashed, hung or ran out of memory."""
    INTERRUPTED = "interrupted"


class Step(StrictModel):
    """One step of a trial and how long it took."""

    name: str
    seconds: float


class Mismatch(StrictModel):
    """A flag that the engine runs with another value than was asked for."""

    flag: str
    asked: str
    got: str


class Effective(StrictModel):
    """What the engine says of itself once it is up."""

    device_pool_tokens: int | None
    host_pool_tokens: int | None
    launch_phases_s: dict[str, float]
    mismatches: tuple[Mismatch, ...] = ()


class Hygiene(StrictModel):
    """Proof that nothing leaked into or out of the trial (design rule 7)."""

    flush_tries: int | None = None
    first_request_cached_tokens: int | None = None
    stop: StopProof | None = None
    """None for an engine that is not ours to stop, and for one that the next trial goes on with."""
    memory_back: bool | None = None
    """Whether device memory returned to its level before the launch; None without a device to ask."""
    storage_emptied: bool | None = None
    """Whether the storage tier was emptied before the launch; None without one of ours."""


class TrialRecord(StrictModel):
    """One setting measured once."""

    schema_version: int = SCHEMA_VERSION
    number: int
    purpose: Purpose
    setting: Setting
    seed: int
    rate_per_s: float | None = None
    """Sessions that arrived in a second; None where a fixed number of them was played at a time."""
    outcome: Outcome
    reason: str
    """One sentence for people; empty when measured without remark."""
    failure: Failure | None = None
    relaunched: bool = True
    """False: it went on with the engine of the trial before, whose folder has the log, and whose launch `argv` is."""
    argv: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """The command by which a user runs the setting for good; records of before it was kept have only `argv`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables that the launch needs besides the user's own."""
    started_at_utc: str
    steps: tuple[Step, ...] = ()
    effective: Effective | None = None
    forecast: MemoryForecast | None = None
    """What memory the setting was predicted to take; None when it was refused before."""
    seen: SeenMemory | None = None
    """What it took."""
    summary: Summary | None = None
    cache: CacheDelta | None = None
    headroom: Headroom | None = None
    reload: ReloadCost | None = None
    """What the reloads of its load cost; None in records of before it was kept."""
    conditions: LoadConditions | None = None
    """What happened on the machine under its load."""
    client: ClientHealth | None = None
    lost: Lost | None = None
    """By how much it was surely worse than the best one so far, which ended its load early."""
    hygiene: Hygiene = Field(default_factory=Hygiene)

    @property
    def duration_s(self) -> float:
        """Seconds from preflight to verdict."""
        return sum(step.seconds for step in self.steps)

    @property
    def usable(self) -> bool:
        """Whether its P99 may be compared with others'; one that is no number sorts anywhere, and may not."""
        steady = self.summary.steady if self.summary else None
        return self.outcome is Outcome.MEASURED and steady is not None and math.isfinite(steady.p99_s)

    @property
    def p99_s(self) -> float:
        """TTFT P99 of the steady window in seconds; only for a usable trial."""
        if self.summary is None or self.summary.steady is None:
            raise ValueError(f"trial {self.number} has no steady P99")
        return self.summary.steady.p99_s

    @property
    def is_the_users_fault(self) -> bool:
        """Whether no setting can work until the user corrects something."""
        return self.failure is not None and self.failure.blame is Blame.USER


def folder_of(root: Path, number: int, purpose: Purpose) -> Path:
    """Return the folder of a trial under the study's `root`."""
    return root / "trials" / f"{number:04d}-{purpose}"


def requests_path(root: Path, record: TrialRecord) -> Path:
    """Return where the requests of a trial are kept; a trial without a load has none there."""
    return folder_of(root, record.number, record.purpose) / REQUESTS_FILE


def next_number(root: Path) -> int:
    """Return a number that no folder has, of complete trials or of those that a crash cut off."""
    names = [path.name.partition("-")[0] for path in (root / "trials").glob("*-*")]
    return max((int(name) for name in names if name.isdecimal()), default=-1) + 1


def write_trial(record: TrialRecord, folder: Path) -> None:
    """Write trial.json; its presence says that the trial is complete."""
    write_atomically(folder / TRIAL_FILE, record.model_dump_json(indent=1))


def read_trial(folder: Path) -> TrialRecord:
    """Read a trial of this or an older version; raise StoreError for a newer or damaged one."""
    path = folder / TRIAL_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = int(data["schema_version"])
        if version < 1:
            raise ValueError(f"format {version}")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise StoreError(f"{path}: not a readable trial ({problem!r}); remove its folder to leave it out") from None
    if version > SCHEMA_VERSION:
        raise StoreError(f"{path}: written by a newer hicache-tune (format {version}); upgrade to read it")
    while version < SCHEMA_VERSION:
        data = UPGRADES[version](data)
        version += 1
    try:
        return TrialRecord.parse({**data, "schema_version": SCHEMA_VERSION}, where=str(path))
    except ConfigError as problem:
        raise StoreError(f"{problem}; remove its folder to leave it out") from None


def read_trials(root: Path) -> list[TrialRecord]:
    """Read all complete trials of a study, in order; a folder without trial.json was cut off and does not count."""
    return [read_trial(path.parent) for path in sorted((root / "trials").glob(f"*/{TRIAL_FILE}"))]
