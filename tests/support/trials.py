"""Trial records as plain values, and the requests of a confirmation: what proposing, learning and deciding look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.engine.failure import Failure, FailureKind
from harness.engine.setting import Setting
from harness.load.job import Lost
from harness.load.record import RequestRecord, Status, write_records
from harness.metrics import Latency
from harness.statistics import Floats
from harness.store import REQUESTS_FILE, Outcome, Step, TrialRecord, folder_of
from harness.summary import Summary
from harness.telemetry import Headroom
from scenarios.plan import Phase

Bools = npt.NDArray[np.bool_]

S = 10**9
GIB = 2**30
SESSIONS, TURNS = 40, 6


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


def surely_worse(setting: Setting, **changes: Any) -> TrialRecord:
    """Make a trial that was stopped early, as it was surely worse than trial 0: half a load has a P99 that lies."""
    reason = "stopped after 24 sessions, over which its TTFT P99 was 60% above that of trial 0"
    lost = Lost(rival=0, sessions=24, change=0.6, change_low=0.2, p99_s=1.6)
    return measured(setting, 0.01, outcome=Outcome.SURELY_WORSE, reason=reason, lost=lost).model_copy(update=changes)


def invalid(setting: Setting, **changes: Any) -> TrialRecord:
    """Make a trial in which the client was the bottleneck: its P99 says nothing of the setting."""
    reason = "the load process was late by 80 ms (P99); the client was the bottleneck"
    return measured(setting, 0.01, outcome=Outcome.INVALID, reason=reason).model_copy(update=changes)


def interrupted(setting: Setting, **changes: Any) -> TrialRecord:
    """Make a trial that the user stopped."""
    nothing: dict[str, Any] = {"outcome": Outcome.INTERRUPTED, "reason": "stopped by the user"}
    return measured(setting, **nothing, summary=None, headroom=None).model_copy(update=changes)


def base_ttft_s(seed: int) -> Floats:
    """Draw what the requests of one seed take with HiCache off: sessions by turns, in seconds."""
    rng = np.random.default_rng(seed)
    return rng.lognormal(0, 0.2, (SESSIONS, 1)) * rng.lognormal(0, 0.3, (SESSIONS, TURNS))


def write_requests(root: Path, record: TrialRecord, ttft_s: Floats, cut: Bools | None = None) -> None:
    """Write the requests of a trial: sessions by turns, of which those of `cut` were not answered."""
    folder = folder_of(root, record.number, record.purpose)
    folder.mkdir(parents=True, exist_ok=True)
    write_records(_requests(ttft_s, cut), folder / REQUESTS_FILE)


def _requests(ttft_s: Floats, cut: Bools | None) -> list[RequestRecord]:
    """Make the requests of a load, with a warm-up request that must not count."""
    found = [RequestRecord("w", 0, Phase.WARMUP, Status.OK, 0, 0, 99 * S, 99 * S, 99 * S)]
    for (session, turn), seconds in np.ndenumerate(ttft_s):
        answered = cut is None or not cut[session, turn]
        first_ns = round(float(seconds) * S)
        status, token_ns = (Status.OK, first_ns) if answered else (Status.CUT, None)
        found.append(RequestRecord(f"s{session}", turn, Phase.COUNTED, status, 0, 0, first_ns, token_ns, token_ns))
    return found
