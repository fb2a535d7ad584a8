"""Trial records as plain values: no files, no requests, only what proposing, learning and deciding look at."""

from __future__ import annotations

from typing import Any

from harness.engine.failure import Failure, FailureKind
from harness.engine.setting import Setting
from harness.store import Outcome, Step, TrialRecord
from harness.summary import Latency, Summary
from harness.telemetry import Headroom

GIB = 2**30


def summary(p99_s: float | None, *, error_rate: float = 0.0) -> Summary:
    """Make the summary of a load with this P99; None is a load without an answer."""
    steady = p99_s and Latency(
        count=600, p50_s=p99_s / 4, p90_s=p99_s / 2, p95_s=p99_s / 1.5, p99_s=p99_s, max_s=p99_s * 1.1, confident=True
    )
    return Summary(
        steady=steady or None,
        whole_run=None,
        first_turns=None,
        by_tier={},
        by_turn={},
        time_per_output_token=None,
        steady_seconds=60.0,
        requests_per_s=10.0,
        output_tokens_per_s=100.0,
        counted=600,
        ok=600,
        failed=0,
        timed_out=0,
        cut=0,
        not_played=0,
        error_rate=error_rate,
        diverges=False,
    )


def measured(
    setting: Setting,
    p99_s: float | None = 1.0,
    *,
    number: int = 0,
    error_rate: float = 0.0,
    host_bytes: int | None = 9 * GIB,
    **changes: Any,
) -> TrialRecord:
    """Make a measured trial of 30 s; `changes` set other fields of the record."""
    record = TrialRecord(
        number=number,
        purpose="search",
        setting=setting.canonical(),
        seed=1,
        outcome=Outcome.MEASURED,
        reason="",
        argv=("python", "-m", "sglang.launch_server", "--port", "4711", *setting.flags()),
        started_at_utc="2026-11-30T08:00:00+00:00",
        steps=(Step(name="load", seconds=30.0),),
        summary=summary(p99_s, error_rate=error_rate),
        headroom=Headroom(None, host_bytes, None, device_reason="no GPU"),
    )
    return record.model_copy(update=changes)


def failed(setting: Setting, kind: FailureKind = FailureKind.GPU_OOM_AT_START, **changes: Any) -> TrialRecord:
    """Make a trial whose engine did not start, and left two last lines."""
    failure = Failure(kind, "it said so", 1, ("first of the last lines", "last of the last lines"))
    nothing: dict[str, Any] = {"outcome": Outcome.FAILED, "reason": failure.sentence, "failure": failure}
    return measured(setting, **nothing, summary=None, headroom=None).model_copy(update=changes)


def not_sustainable(setting: Setting, **changes: Any) -> TrialRecord:
    """Make a trial whose TTFT only grew: it has a P99 that means nothing."""
    reason = "time to first token only grew during the load"
    return measured(setting, 0.01, outcome=Outcome.NOT_SUSTAINABLE, reason=reason).model_copy(update=changes)


def invalid(setting: Setting, **changes: Any) -> TrialRecord:
    """Make a trial in which the client was the bottleneck: its P99 says nothing of the setting."""
    reason = "the load process was late by 80 ms (P99); the client was the bottleneck"
    return measured(setting, 0.01, outcome=Outcome.INVALID, reason=reason).model_copy(update=changes)


def interrupted(setting: Setting, **changes: Any) -> TrialRecord:
    """Make a trial that the user stopped."""
    nothing: dict[str, Any] = {"outcome": Outcome.INTERRUPTED, "reason": "stopped by the user"}
    return measured(setting, **nothing, summary=None, headroom=None).model_copy(update=changes)
