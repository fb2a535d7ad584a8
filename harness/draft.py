"""A trial while it is being run: what has been seen so far, and the verdict at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import pandas as pd

from harness.engine.effective import differences
from harness.engine.failure import Failure, FailureKind
from harness.engine.handle import EngineHandle, LaunchPlan
from harness.engine.memory import DeviceRoom, MemoryForecast, SeenMemory, kv_bytes_of_rank, seen_memory
from harness.engine.process import StopProof
from harness.engine.readiness import LaunchPhase
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.kept import KeptEngine
from harness.load.job import ClientHealth, LoadProgress, Stopped
from harness.load.runner import LoadResult
from harness.load_conditions import LoadConditions
from harness.metrics import Slo
from harness.reload_cost import ReloadCost, reload_cost
from harness.store import Effective, Hygiene, Mismatch, Outcome, Purpose, Step, TrialRecord
from harness.summary import Summary, summarise
from harness.telemetry import CacheDelta, Headroom, MetricsSnapshot, Ranks, Telemetry
from scenarios.plan import Plan

SATURATED_CPU = 0.9
SATURATED_LAG_MS = 50.0
"""A client whose loop is late by this much (P99) adds it to every TTFT it measures."""
SATURATED_LATE_MS = 50.0
"""A client that sends requests so much later (P99) than scheduled does not play the load that was asked for."""


class Watch(Protocol):
    """Whoever shows a running trial to people."""

    def step(self, number: int, name: str) -> None:
        """Tell that a step begins."""

    def step_done(self, number: int, step: Step) -> None:
        """Tell that a step has ended."""

    def launching(self, number: int, phase: LaunchPhase) -> None:
        """Tell how far the launch has come."""

    def playing(self, number: int, progress: LoadProgress) -> None:
        """Tell how far the load has come."""


class Draft:
    """Collects what a trial shows, step by step."""

    def __init__(
        self,
        watch: Watch,
        *,
        number: int,
        purpose: Purpose,
        setting: Setting,
        plan: Plan,
        slos: Sequence[Slo] = (),
    ) -> None:
        self.setting = setting.canonical()
        self._slos = slos
        self.launch = LaunchPlan(argv=())
        self._watch, self._number, self._purpose, self._plan = watch, number, purpose, plan
        self._started_at_utc = datetime.now(UTC).isoformat(timespec="seconds")
        self._steps: list[Step] = []
        self._hygiene: dict[str, Any] = {}
        self._effective: Effective | None = None
        self._forecast: MemoryForecast | None = None
        self._room: DeviceRoom | None = None
        self._seen: SeenMemory | None = None
        self._load: LoadResult | None = None
        self._summary: Summary | None = None
        self._cache: CacheDelta | None = None
        self._headroom: Headroom | None = None
        self._conditions: LoadConditions | None = None
        self._reload: ReloadCost | None = None
        self._failure: Failure | None = None
        self._relaunched = True
        self._spoilt = ""
        self._interrupted = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step and show it."""
        self._watch.step(self._number, name)
        started = time.monotonic()
        try:
            yield
        finally:
            step = Step(name=name, seconds=round(time.monotonic() - started, 3))
            self._steps.append(step)
            self._watch.step_done(self._number, step)

    def launching(self, phase: LaunchPhase) -> None:
        """Show how far the launch has come."""
        self._watch.launching(self._number, phase)

    def playing(self, progress: LoadProgress) -> None:
        """Show how far the load has come."""
        self._watch.playing(self._number, progress)

    def ready(self, server_info: dict[str, Any], phases_s: dict[str, float]) -> None:
        """Keep what the engine says of itself, and where that differs from what was asked."""
        self._effective = Effective(
            device_pool_tokens=server_info.get("max_total_num_tokens"),
            host_pool_tokens=None,
            launch_phases_s=phases_s,
            mismatches=tuple(
                Mismatch(flag=found.flag, asked=found.asked, got=found.got)
                for found in differences(self.setting, server_info)
            ),
        )

    def flushed(self, tries: int) -> None:
        """Keep that the caches were emptied before the load."""
        self._hygiene["flush_tries"] = tries

    def watched(self, telemetry: Telemetry) -> None:
        """Keep the least headroom seen under load, and what happened on the machine meanwhile."""
        self._headroom = telemetry.headroom
        self._conditions = LoadConditions.of(telemetry)

    def loaded(self, result: LoadResult) -> None:
        """Keep the load's records in figures."""
        self._load = result
        summary = summarise(result.records, not_played=result.outcome.turns_not_played, slos=self._slos)
        # Half a load may not show it any more: what was seen while it ran stands.
        diverges = summary.diverges or result.outcome.stopped is Stopped.DIVERGED
        self._summary = summary.model_copy(update={"diverges": diverges})
        self._hygiene["first_request_cached_tokens"] = first_cached_tokens(result.records)

    def counted(self, before: MetricsSnapshot, after: MetricsSnapshot, spec: EngineSpec) -> None:
        """Keep what the engine's counters did over the load."""
        ranks = Ranks(tp_size=spec.tp_size, dp_size=spec.dp_size, dp_attention=spec.dp_attention)
        self._cache = CacheDelta.between(before, after, ranks)
        if self._load:
            per_rank = kv_bytes_of_rank(self.setting, spec)
            self._reload = reload_cost(
                self._load.records,
                self._cache,
                kv_bytes_per_token=None if per_rank is None else per_rank * spec.attention_ranks,
                pcie_ceiling_bytes_per_s=self._conditions.device.pcie_ceiling_bytes_per_s if self._conditions else None,
            )
        if self._effective:
            host_pool_tokens = self._cache.at_end.host_total_tokens
            self._effective = self._effective.model_copy(update={"host_pool_tokens": host_pool_tokens})
            self._seen = seen_memory(
                self.setting,
                spec,
                device_pool_tokens=self._effective.device_pool_tokens,
                host_pool_tokens=host_pool_tokens,
                room=self._room,
                least_free_bytes=self._headroom.device_bytes if self._headroom else None,
            )

    def expected(self, forecast: MemoryForecast, room: DeviceRoom | None) -> None:
        """Keep what memory the setting was predicted to take, and what the device had before the launch."""
        self._forecast, self._room = forecast, room

    def taken_over(self, kept: KeptEngine) -> None:
        """Keep that nothing was launched, and what is known of the engine since its launch."""
        self._relaunched, self.launch = False, kept.launch
        self._forecast, self._room = kept.forecast, kept.room

    def to_keep(self, engine: EngineHandle) -> KeptEngine:
        """Say what the next trial must know of this one's engine."""
        return KeptEngine(engine, self.launch, self.setting, self._forecast, self._room)

    @property
    def idle_free_bytes(self) -> int | None:
        """The device's free memory before the launch; None where it was not read."""
        return self._room.free_bytes if self._room else None

    def storage(self, is_emptied: bool | None) -> None:
        """Keep whether the storage tier was emptied; None without one."""
        self._hygiene["storage_emptied"] = is_emptied

    def stopped(self, proof: StopProof | None) -> None:
        """Keep the proof that nothing of the engine is left; None for an engine that is not ours to stop."""
        self._hygiene["stop"] = proof

    def memory_back(self, is_back: bool | None) -> None:
        """Keep whether device memory returned to its level before the launch."""
        self._hygiene["memory_back"] = is_back

    def failed(self, failure: Failure) -> None:
        """Keep why the engine failed."""
        self._failure = failure

    def spoilt(self, reason: str) -> None:
        """Keep that the measurement itself went wrong."""
        self._spoilt = reason

    def interrupted(self) -> None:
        """Keep that the user stopped it."""
        self._interrupted = True

    def verdict(self) -> TrialRecord:
        """Say what the trial is worth."""
        outcome, reason = self._judge()
        return TrialRecord(
            number=self._number,
            purpose=self._purpose,
            setting=self.setting,
            seed=self._plan.seed,
            rate_per_s=self._plan.rate_per_s,
            outcome=outcome,
            reason=reason,
            failure=self._failure,
            relaunched=self._relaunched,
            argv=self.launch.argv,
            command=self.launch.command,
            env=dict(self.launch.env),
            started_at_utc=self._started_at_utc,
            steps=tuple(self._steps),
            effective=self._effective,
            forecast=self._forecast,
            seen=self._seen,
            summary=self._summary,
            cache=self._cache,
            headroom=self._headroom,
            reload=self._reload,
            conditions=self._conditions,
            client=self._load.outcome.client if self._load else None,
            lost=self._load.outcome.lost if self._load else None,
            hygiene=Hygiene(**self._hygiene),
        )

    def _judge(self) -> tuple[Outcome, str]:
        if self._interrupted:
            return Outcome.INTERRUPTED, "stopped by the user"
        if self._failure is not None:
            return Outcome.FAILED, self._failure.sentence
        if self._spoilt:
            return Outcome.INVALID, self._spoilt
        if self._load is None or self._summary is None:
            return Outcome.INTERRUPTED, "ended before the load"
        if self._load.outcome.stopped is Stopped.INTERRUPTED:
            return Outcome.INTERRUPTED, "the load process was told to stop from outside"
        if self._cache is not None and self._cache.epoch_reset:
            self._failure = Failure(FailureKind.CRASH, "the engine's counters fell: it restarted under load", None)
            return Outcome.FAILED, self._failure.sentence
        if complaint := self._client_complaint():
            return Outcome.INVALID, complaint
        if reason := self._why_not_sustained(self._load.outcome.stopped, self._summary):
            return Outcome.NOT_SUSTAINABLE, reason
        if lost := self._load.outcome.lost:
            return Outcome.SURELY_WORSE, (
                f"stopped after {lost.sessions} sessions, over which its TTFT P99 was {lost.change:.0%} above that of "
                f"trial {lost.rival}, and surely {lost.change_low:.0%} at least"
            )
        return Outcome.MEASURED, ""

    @staticmethod
    def _why_not_sustained(stopped: Stopped, summary: Summary) -> str:
        unanswered = summary.cut + summary.not_played
        if stopped is Stopped.LIMIT:
            return f"{unanswered} counted requests were unanswered when the time limit came"
        if stopped is Stopped.DIVERGED:
            return f"time to first token only grew: the load was stopped with {unanswered} counted requests unanswered"
        if stopped is Stopped.SLO_MISSED:
            return (
                "so many requests missed the service level that the P99 could not meet it any more: the load was "
                f"stopped with {unanswered} counted requests unanswered"
            )
        if summary.diverges:
            return "time to first token only grew during the load"
        return "" if summary.steady else "no counted request was answered"

    def _client_complaint(self) -> str:
        health = self._load.outcome.client if self._load else None
        if health is not None and (figure := _saturation(health)):
            return f"{figure}; the client was the bottleneck: play the load by more processes with --load-processes"
        is_kept = self._hygiene.get("storage_emptied") is False
        if self._hygiene.get("first_request_cached_tokens") and not is_kept:
            return "the first request found cached tokens; the start was not cold"
        return ""


def _saturation(health: ClientHealth) -> str:
    """Say by which figure a load process did not keep up; empty when it did."""
    if health.cpu_fraction > SATURATED_CPU:
        return f"a load process was busy for {health.cpu_fraction:.0%} of the time"
    if health.lag_p99_ms > SATURATED_LAG_MS:
        return f"a load process was late by {health.lag_p99_ms:.0f} ms (P99)"
    if health.late_p99_ms is not None and health.late_p99_ms > SATURATED_LATE_MS:
        return f"requests were sent {health.late_p99_ms:.0f} ms later than scheduled (P99)"
    return ""


def first_cached_tokens(records: pd.DataFrame) -> int | None:
    """Return the cached tokens of the request that the engine took first; None when it did not tell.

    That need not be the one sent first. It is among those sent before any token came, and a later one of them may
    find the prefix that it left.
    """
    early = records[records["sent_ns"] < records["first_token_ns"].min()]["cached_tokens"].dropna()
    return int(early.min()) if len(early) else None
