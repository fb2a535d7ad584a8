"""Verdicts: what a trial is worth, from what was seen of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.draft import SATURATED_CPU, SATURATED_LAG_MS, SATURATED_LATE_MS, Draft, first_cached_tokens
from harness.engine.failure import Failure, FailureKind
from harness.engine.handle import LaunchPlan
from harness.engine.process import StopProof
from harness.engine.readiness import LaunchPhase
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.load.job import ClientHealth, LoadOutcome, LoadProgress, Lost, PhaseCounts, Stopped
from harness.load.record import RequestRecord, Status, read_records, write_records
from harness.load.runner import LoadResult
from harness.store import Mismatch, Outcome, Step, TrialRecord
from harness.telemetry import Headroom, MetricsSnapshot, Telemetry, sample
from scenarios.plan import Phase, Plan
from tests.support.recordings import recorded

SETTING = Setting(hicache=True, hicache_size=60, page_size=64, extra={"schedule-policy": "lpm"})
SPEC = EngineSpec(python=Path("p"), model="m", sglang_version="0.5.15")
HEALTHY = ClientHealth(cpu_fraction=0.2, lag_p99_ms=2.0, lag_max_ms=9.0, gc_pause_ms=0.0)
S = 1_000_000_000


class Watch:
    """Notes what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def step(self, number: int, name: str) -> None:
        """Note it."""
        self.told.append(("begin", number, name))

    def step_done(self, number: int, step: Step) -> None:
        """Note it."""
        self.told.append(("end", number, step.name))

    def launching(self, number: int, phase: LaunchPhase) -> None:
        """Note it."""
        self.told.append((number, phase))

    def playing(self, number: int, progress: LoadProgress) -> None:
        """Note it."""
        self.told.append((number, progress))


def request(number: int, *, ttft_s: float = 0.1, status: Status = Status.OK, cached: int | None = 0) -> RequestRecord:
    """Make the request that was sent in second `number`."""
    at_ns = number * S
    first_ns = at_ns + round(ttft_s * S) if status is Status.OK else None
    return RequestRecord(
        session_id=f"s{number % 7}",
        turn=1,
        phase=Phase.COUNTED,
        status=status,
        scheduled_ns=at_ns,
        sent_ns=at_ns,
        end_ns=at_ns + round(ttft_s * S) + S,
        first_token_ns=first_ns,
        last_token_ns=first_ns,
        output_tokens=8,
        cached_tokens=cached,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where records are written to be read again."""
    return tmp_path


def frame(requests: Sequence[RequestRecord], folder: Path) -> pd.DataFrame:
    """Make records as the load leaves them."""
    write_records(requests, folder / "requests.parquet")
    return read_records(folder / "requests.parquet")


def load(
    folder: Path,
    requests: Sequence[RequestRecord] | None = None,
    *,
    stopped: Stopped = Stopped.COMPLETE,
    client: ClientHealth = HEALTHY,
    not_played: int = 0,
    lost: Lost | None = None,
) -> LoadResult:
    """Make a load that went well, but for what is said."""
    records = frame([request(n) for n in range(9)] if requests is None else requests, folder)
    outcome = LoadOutcome(
        started_ns=0,
        ended_ns=100 * S,
        started_at_utc="2026-11-30T08:00:00.000+00:00",
        stopped=stopped,
        counts=(PhaseCounts(phase=Phase.COUNTED, ok=len(records), not_played=not_played),),
        clients=(HEALTHY, client),
        lost=lost,
        locust_requests=len(records),
        locust_version="2",
        python_version="3",
    )
    return LoadResult(outcome, records)


def draft() -> Draft:
    """Begin a trial."""
    return Draft(Watch(), number=7, purpose="confirm", setting=SETTING, plan=Plan("chat", 11, 1, ()))


def verdict(result: LoadResult) -> TrialRecord:
    """Judge a trial of which only the load is known."""
    begun = draft()
    begun.loaded(result)
    return begun.verdict()


def test_a_good_load_is_measured(folder: Path) -> None:
    """Nothing to complain of: it is comparable, and keeps who it is."""
    record = verdict(load(folder))
    assert (record.outcome, record.reason, record.usable) == (Outcome.MEASURED, "", True)
    assert (record.number, record.purpose, record.seed, record.setting) == (7, "confirm", 11, SETTING.canonical())
    assert record.p99_s == pytest.approx(0.1)
    assert record.client == HEALTHY
    assert record.hygiene.first_request_cached_tokens == 0


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (HEALTHY.model_copy(update={"cpu_fraction": 0.95}), "busy for 95% of the time; the client was the bottleneck"),
        (HEALTHY.model_copy(update={"lag_p99_ms": 80.0}), "late by 80 ms (P99); the client was the bottleneck"),
        (HEALTHY.model_copy(update={"late_p99_ms": 70.0}), "70 ms later than scheduled (P99); the client was the bott"),
    ],
)
def test_a_client_that_was_the_bottleneck(client: ClientHealth, said: str, folder: Path) -> None:
    """The measurement is invalid, not slow, even when the load ran into its limit besides."""
    for stopped in (Stopped.COMPLETE, Stopped.LIMIT):
        record = verdict(load(folder, client=client, stopped=stopped))
        assert (record.outcome, record.failure, record.usable) == (Outcome.INVALID, None, False)
        assert said in record.reason
        assert "--load-processes" in record.reason


def test_a_client_at_the_limit_is_still_good(folder: Path) -> None:
    """The limits themselves are allowed."""
    client = ClientHealth(
        cpu_fraction=SATURATED_CPU,
        lag_p99_ms=SATURATED_LAG_MS,
        lag_max_ms=900,
        gc_pause_ms=0,
        late_p99_ms=SATURATED_LATE_MS,
        late_max_ms=900,
    )
    assert verdict(load(folder, client=client)).outcome is Outcome.MEASURED


def test_a_start_that_was_not_cold(folder: Path) -> None:
    """Cached tokens before any prompt was served come from elsewhere."""
    record = verdict(load(folder, [request(n, cached=64) for n in range(9)]))
    assert (record.outcome, record.hygiene.first_request_cached_tokens) == (Outcome.INVALID, 64)
    assert record.reason == "the first request found cached tokens; the start was not cold"


@pytest.mark.parametrize(("is_emptied", "outcome"), [(False, Outcome.MEASURED), (True, Outcome.INVALID)])
def test_a_storage_tier_that_is_kept_may_be_found(is_emptied: bool, outcome: Outcome, folder: Path) -> None:
    """The user has asked for it; one that was emptied can not be where the tokens came from."""
    begun = draft()
    begun.storage(is_emptied)
    begun.loaded(load(folder, [request(n, cached=64) for n in range(9)]))
    record = begun.verdict()
    assert (record.outcome, record.hygiene.storage_emptied) == (outcome, is_emptied)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([request(0, cached=0), request(1, cached=500)], 0),
        ([request(0, cached=64), request(1, cached=0)], 64),
        ([request(0, ttft_s=3, cached=64), request(1, ttft_s=1, cached=0), request(2, cached=500)], 0),
        ([request(0, ttft_s=3, cached=64), request(1, ttft_s=3, cached=32)], 32),
        ([request(0, cached=None), request(1, cached=64)], None),
        ([request(0, status=Status.FAILED, cached=None), request(1, cached=64)], 64),
        ([request(0, status=Status.FAILED, cached=None)], None),
        ([], None),
    ],
)
def test_the_request_that_the_engine_took_first(
    requests: list[RequestRecord], expected: int | None, folder: Path
) -> None:
    """Of the requests sent before any token came, one must be cold; what is not told is unknown."""
    assert first_cached_tokens(frame(requests, folder)) == expected


def test_a_load_that_ran_into_its_limit(folder: Path) -> None:
    """It is not sustainable, with the count of what was not answered."""
    requests = [*(request(n) for n in range(9)), request(9, status=Status.CUT), request(10, status=Status.CUT)]
    record = verdict(load(folder, requests, stopped=Stopped.LIMIT, not_played=5))
    assert record.outcome is Outcome.NOT_SUSTAINABLE
    assert record.reason == "7 counted requests were unanswered when the time limit came"
    assert not record.usable


def test_a_load_whose_latency_only_grew(folder: Path) -> None:
    """A queue that never stops growing has no P99 to compare."""
    record = verdict(load(folder, [request(n, ttft_s=0.1 * 1.05**n) for n in range(90)]))
    assert (record.outcome, record.usable) == (Outcome.NOT_SUSTAINABLE, False)
    assert record.reason == "time to first token only grew during the load"


def test_a_load_that_was_stopped_as_it_diverged(folder: Path) -> None:
    """What was seen while it ran stands, also when the part that was played does not show it."""
    requests = [*(request(n) for n in range(9)), request(9, status=Status.CUT)]
    record = verdict(load(folder, requests, stopped=Stopped.DIVERGED, not_played=5))
    assert (record.outcome, record.usable) == (Outcome.NOT_SUSTAINABLE, False)
    assert record.reason == ("time to first token only grew: the load was stopped with 6 counted requests unanswered")
    assert record.summary is not None
    assert record.summary.diverges


def test_a_load_that_was_stopped_as_it_missed_its_level(folder: Path) -> None:
    """Half a load has no P99 to compare; that it diverged is not said."""
    record = verdict(load(folder, stopped=Stopped.SLO_MISSED, not_played=5))
    assert (record.outcome, record.usable) == (Outcome.NOT_SUSTAINABLE, False)
    assert "the P99 could not meet it any more: the load was stopped with 5 counted requests" in record.reason
    assert record.summary is not None
    assert not record.summary.diverges


def test_a_load_that_was_stopped_as_it_was_surely_worse(folder: Path) -> None:
    """It ran, and has no P99 to compare; by how much it was worse is kept for whoever proposes."""
    lost = Lost(rival=2, sessions=24, change=0.6, change_low=0.25, p99_s=0.8)
    record = verdict(load(folder, stopped=Stopped.SURELY_WORSE, not_played=5, lost=lost))
    assert (record.outcome, record.usable, record.lost) == (Outcome.SURELY_WORSE, False, lost)
    assert record.reason == (
        "stopped after 24 sessions, over which its TTFT P99 was 60% above that of trial 2, and surely 25% at least"
    )


def test_a_load_without_an_answer(folder: Path) -> None:
    """No answer is no latency of zero."""
    record = verdict(load(folder, [request(n, status=Status.FAILED, cached=None) for n in range(9)]))
    assert (record.outcome, record.reason) == (Outcome.NOT_SUSTAINABLE, "no counted request was answered")


def test_a_load_process_that_somebody_stopped(folder: Path) -> None:
    """Half a load is no measurement, also when it was not the user of the search who stopped it."""
    record = verdict(load(folder, stopped=Stopped.INTERRUPTED))
    assert (record.outcome, record.usable) == (Outcome.INTERRUPTED, False)


def test_an_engine_that_restarted_under_load(folder: Path) -> None:
    """Counters that fell mean another engine process, whatever the client saw."""
    begun = draft()
    begun.loaded(load(folder))
    before = recorded("cpu-0.5.15/hicache_ps1.txt.gz")
    begun.counted(before, MetricsSnapshot(1), SPEC)
    record = begun.verdict()
    assert record.outcome is Outcome.FAILED
    assert record.failure is not None
    assert record.failure.kind is FailureKind.CRASH
    assert record.reason == record.failure.sentence
    assert "it restarted under load" in record.reason


def test_a_failure_wins_over_what_the_load_shows(folder: Path) -> None:
    """The engine's failure is the verdict, and the early replies are kept beside it."""
    begun = draft()
    begun.loaded(load(folder, stopped=Stopped.ENGINE_LOST))
    failure = Failure(FailureKind.GPU_OOM_UNDER_LOAD, "CUDA out of memory", -9)
    begun.failed(failure)
    record = begun.verdict()
    assert (record.outcome, record.reason, record.failure) == (Outcome.FAILED, failure.sentence, failure)
    assert record.summary is not None
    assert not record.usable


def test_the_user_wins_over_everything(folder: Path) -> None:
    """What was interrupted is not charged to the setting."""
    begun = draft()
    begun.loaded(load(folder))
    begun.failed(Failure(FailureKind.CRASH, "", -9))
    begun.spoilt("no disk")
    begun.interrupted()
    assert begun.verdict().outcome is Outcome.INTERRUPTED


def test_a_spoilt_measurement(folder: Path) -> None:
    """When the load process or telemetry broke the measurement is at fault; a failed engine is told first."""
    begun = draft()
    begun.loaded(load(folder))
    begun.spoilt("the load process ended with code 1")
    assert (begun.verdict().outcome, begun.verdict().reason) == (Outcome.INVALID, "the load process ended with code 1")
    begun.failed(Failure(FailureKind.CRASH, "", -9))
    assert begun.verdict().outcome is Outcome.FAILED


def test_a_trial_that_never_came_to_its_load() -> None:
    """Without a load there is nothing to judge."""
    assert draft().verdict().outcome is Outcome.INTERRUPTED


def test_steps_are_timed_and_shown_also_when_they_fail() -> None:
    """Each step is told when it begins and when it ends, however it ends."""
    watch = Watch()
    begun = Draft(watch, number=7, purpose="search", setting=SETTING, plan=Plan("chat", 1, 1, ()))
    with begun.step("launch"):
        pass
    with pytest.raises(ZeroDivisionError), begun.step("ready"):
        raise ZeroDivisionError
    begun.launching(LaunchPhase.WEIGHTS)
    progress = LoadProgress(done=1, of=2, failed=0, in_flight=1, ttft_p50_ms=None)
    begun.playing(progress)
    assert watch.told == [
        *(("begin", 7, "launch"), ("end", 7, "launch"), ("begin", 7, "ready"), ("end", 7, "ready")),
        *((7, LaunchPhase.WEIGHTS), (7, progress)),
    ]
    steps = begun.verdict().steps
    assert [step.name for step in steps] == ["launch", "ready"]
    assert begun.verdict().duration_s == sum(step.seconds for step in steps)


def test_what_was_seen_is_in_the_record(folder: Path) -> None:
    """Pools, phases, counters and the proofs of hygiene find their places; the host pool comes from the counters."""
    begun = draft()
    begun.launch = LaunchPlan(argv=("python",), env={"A": "b"})
    begun.ready({"max_total_num_tokens": 6144, "page_size": 1}, {"imports": 9.0})
    begun.flushed(3)
    begun.loaded(load(folder))
    scrape = recorded("cpu-0.5.15/hicache_ps1.txt.gz")
    begun.counted(scrape, replace(scrape, taken_ns=5), SPEC)
    begun.stopped(StopProof(-15, 0, 0, True))
    begun.memory_back(None)
    record = begun.verdict()
    assert (record.argv, record.env) == (("python",), {"A": "b"})
    assert record.effective is not None
    assert record.cache is not None
    assert record.cache.prompt_tokens == 0
    assert record.effective.device_pool_tokens == 6144
    assert record.effective.host_pool_tokens == record.cache.at_end.host_total_tokens
    assert record.effective.host_pool_tokens
    assert record.effective.launch_phases_s == {"imports": 9.0}
    assert record.effective.mismatches == (Mismatch(flag="--page-size", asked="64", got="1"),)
    assert (record.hygiene.flush_tries, record.hygiene.stop) == (3, StopProof(-15, 0, 0, True))


QWEN2_7B = {
    "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "torch_dtype": "bfloat16",
}  # fmt: skip
"""57,344 bytes of KV a token, as measured on an H200."""


@pytest.mark.parametrize("tp_size", [1, 2])
def test_what_reloads_cost_and_what_the_machine_did_is_in_the_record(folder: Path, tp_size: int) -> None:
    """Bytes follow from the model's KV over all ranks, the ceiling from the links seen under load."""
    begun = draft()
    samples = sample.frame([sample.Sample(at, pcie_link_bytes_per_s=63e9, device_xid=31) for at in (0, S)])
    begun.watched(Telemetry(samples, Headroom(1, 2, None), 0, 0, None))
    begun.loaded(load(folder))
    before, after = (recorded(f"h200-0.5.15/metrics_{when}_wt60.txt.gz") for when in ("before", "after"))
    begun.counted(before, after, replace(SPEC, config=QWEN2_7B, tp_size=tp_size))
    record = begun.verdict()
    assert record.reload is not None
    assert record.cache is not None
    assert record.cache.load_back_tokens
    assert record.reload.kv_bytes_per_token == 57_344
    assert record.reload.bytes == record.cache.load_back_tokens * 57_344
    assert record.reload.pcie_ceiling_bytes_per_s == 63e9
    assert record.conditions is not None
    assert (record.conditions.device.xid, record.outcome) == (31, Outcome.MEASURED)
