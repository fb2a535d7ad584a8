"""Small studies for the report's tests: records of every outcome with their Parquet files, made without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.engine.failure import Failure, FailureKind
from harness.engine.process import StopProof
from harness.engine.setting import Setting
from harness.environment import Environment
from harness.load.job import ClientHealth
from harness.load.record import RequestRecord, Status, read_records, write_records
from harness.store import (
    REQUESTS_FILE,
    SAMPLES_FILE,
    Effective,
    Hygiene,
    Mismatch,
    Outcome,
    Purpose,
    Step,
    TrialRecord,
    folder_of,
    write_trial,
)
from harness.summary import Summary, summarise
from harness.telemetry import CacheDelta, EngineGauges, Headroom
from scenarios.catalogue import load_scenario
from scenarios.plan import Phase
from tuning.config import STUDY_FILE, Search, StudyFile
from tuning.objective import Objective
from tuning.space import DEFAULT_RANGES
from tuning.study import BASELINES
from tuning.verdict import Verdict, decide

GIB = 2**30
SESSIONS = 40
EDGE_SESSIONS = 10
"""Of the warm-up, and as many fillers."""
TURNS = 6
DEVICE_POOL_TOKENS = 6144
PROMPT_TOKENS = 180_000
ATTACK = "<script>alert(1)</script>"
"""Text that must never reach the page as markup."""

OFF, ON = BASELINES
RATIO_3 = Setting(hicache=True, hicache_ratio=3.0, hicache_write_policy="write_back", page_size=32).canonical()
RATIO_4 = Setting(hicache=True, hicache_ratio=4.5, mem_fraction_static=0.88).canonical()
RATIO_6 = Setting(hicache=True, hicache_ratio=6.0, extra={"chat-template": ATTACK}).canonical()
TOO_LARGE = Setting(hicache=True, hicache_size=400, hicache_io_backend="direct").canonical()

_SUMMARIES: dict[tuple[float, int], Summary] = {}


@dataclass(frozen=True)
class Made:
    """A study on disk and what the report is made of."""

    root: Path
    study: StudyFile
    records: list[TrialRecord]
    objective: Objective
    verdict: Verdict


class StudyMaker:
    """Makes the trials of one study in `root`, numbered as they come."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records: list[TrialRecord] = []

    def measured(
        self,
        setting: Setting,
        *,
        ttft_s: float,
        purpose: Purpose = "search",
        seed: int = 1,
        outcome: Outcome = Outcome.MEASURED,
        reason: str = "",
        host_bytes: int | None = 9 * GIB,
        **changes: Any,
    ) -> TrialRecord:
        """Make a trial whose later turns take `ttft_s` at the median, and write its files."""
        number = len(self.records)
        folder = folder_of(self.root, number, purpose)
        folder.mkdir(parents=True)
        write_records(_requests(ttft_s, seed), folder / REQUESTS_FILE)
        _samples(hicache=setting.hicache).to_parquet(folder / SAMPLES_FILE, index=False)
        record = TrialRecord(
            number=number,
            purpose=purpose,
            setting=setting,
            seed=seed,
            outcome=outcome,
            reason=reason,
            argv=("python", "-m", "sglang.launch_server", "--model-path", "tiny", "--port", "4711", *setting.flags()),
            started_at_utc="2026-11-30T08:00:00+00:00",
            steps=(Step(name="launch", seconds=14.5), Step(name="load", seconds=61.0)),
            effective=_effective(setting),
            summary=_summary(folder / REQUESTS_FILE, ttft_s, seed),
            cache=cache_delta(host_tokens=70_000 if setting.hicache else None),
            headroom=Headroom(None, host_bytes, None, device_reason="no GPU"),
            client=ClientHealth(cpu_fraction=0.2, lag_p99_ms=2.0, lag_max_ms=9.0, gc_pause_ms=1.0),
            hygiene=Hygiene(flush_tries=1, first_request_cached_tokens=0, stop=StopProof(-9, 0, 0, True)),
        )
        return self._keep(record.model_copy(update=changes))

    def failed(self, setting: Setting, kind: FailureKind, said: str) -> TrialRecord:
        """Make a trial whose engine failed at its start and left nothing but a log."""
        failure = Failure(kind, said, 1, ("Traceback (most recent call last):", said))
        return self._keep(
            TrialRecord(
                number=len(self.records),
                purpose="search",
                setting=setting,
                seed=1,
                outcome=Outcome.FAILED,
                reason=failure.sentence,
                failure=failure,
                started_at_utc="2026-11-30T08:00:00+00:00",
                steps=(Step(name="launch", seconds=8.25),),
            )
        )

    def confirm(self, settings: Sequence[tuple[Setting, float]], *, rounds: int = 2) -> None:
        """Measure each setting again on the fresh seeds of `rounds` rounds."""
        for seed in range(1001, 1001 + rounds):
            for setting, ttft_s in settings:
                self.measured(setting, ttft_s=ttft_s, purpose="confirm", seed=seed)

    def made(self, **environment: Any) -> Made:
        """Close the study: write study.json and draw the verdict."""
        study = study_file(**environment)
        (self.root / STUDY_FILE).write_text(study.model_dump_json(), encoding="utf-8")
        objective = Objective.of(study.search)
        verdict = decide(self.records, self.root, baseline_key=OFF.key, objective=objective)
        return Made(self.root, study, self.records, objective, verdict)

    def _keep(self, record: TrialRecord) -> TrialRecord:
        folder = folder_of(self.root, record.number, record.purpose)
        folder.mkdir(parents=True, exist_ok=True)
        write_trial(record, folder)
        self.records.append(record)
        return record


def confirmed_study(root: Path) -> Made:
    """Make a study that ends well and has seen every outcome on its way."""
    maker = StudyMaker(root)
    maker.measured(OFF, ttft_s=1.3)
    maker.measured(ON, ttft_s=0.7)
    mismatch = Mismatch(flag="--page-size", asked="32", got="64")
    effective = _effective(RATIO_3).model_copy(update={"mismatches": (mismatch,)})
    maker.measured(RATIO_3, ttft_s=0.35, effective=effective)
    maker.failed(TOO_LARGE, FailureKind.HOST_MEMORY_REFUSED, f"Not enough host memory available. {ATTACK}")
    maker.measured(RATIO_4, ttft_s=0.36, host_bytes=GIB // 2)
    late = "the load process was late by 80 ms (P99); the client was the bottleneck"
    maker.measured(RATIO_6, ttft_s=0.5, outcome=Outcome.INVALID, reason=late)
    maker.measured(RATIO_6, ttft_s=0.40)
    unanswered = "12 counted requests were unanswered when the time limit came"
    slow = Setting(page_size=64)
    maker.measured(slow, ttft_s=4.0, outcome=Outcome.NOT_SUSTAINABLE, reason=unanswered)
    maker.confirm([(OFF, 1.3), (ON, 0.7), (RATIO_3, 0.35), (RATIO_6, 0.352)])
    return maker.made(copy_gb_per_s=0.5)


def unconfirmed_study(root: Path) -> Made:
    """Make a study whose budget ended before its confirmation."""
    maker = StudyMaker(root)
    maker.measured(OFF, ttft_s=1.3)
    maker.measured(RATIO_3, ttft_s=0.4)
    return maker.made()


def infeasible_study(root: Path) -> Made:
    """Make a study in which no engine started, which leaves no file but trial.json."""
    maker = StudyMaker(root)
    maker.failed(OFF, FailureKind.CRASH, "Segmentation fault")
    maker.failed(ON, FailureKind.CRASH, "Segmentation fault")
    return maker.made()


def unsustained_study(root: Path) -> Made:
    """Make a study whose baseline does not sustain the load that the winner sustains."""
    maker = StudyMaker(root)
    maker.measured(OFF, ttft_s=6.0, outcome=Outcome.NOT_SUSTAINABLE, reason="time to first token only grew")
    maker.measured(RATIO_3, ttft_s=0.4)
    grew = "time to first token only grew during the load"
    for seed in (1001, 1002):
        maker.measured(OFF, ttft_s=6.0, purpose="confirm", seed=seed, outcome=Outcome.NOT_SUSTAINABLE, reason=grew)
        maker.measured(RATIO_3, ttft_s=0.4, purpose="confirm", seed=seed)
    return maker.made()


def study_file(**environment: Any) -> StudyFile:
    """Describe a study on the CPU engine; `environment` changes what it was measured on."""
    here = Environment(
        host="tester",
        processor="A processor @ 2.0 GHz",
        cores=2,
        memory_gib=16,
        gpus=(),
        driver=None,
        sglang_version="0.5.15",
        model="tiny",
        device="cpu",
        copy_gb_per_s=None,
        tool_version="0.1.0",
    )
    search = Search(
        engine="cpu",
        model="tiny",
        scenario=load_scenario("cpu-chat"),
        api="chat",
        seed=1,
        space=DEFAULT_RANGES["cpu"].space(),
        constraints=("errors <= 1%", "headroom.host >= 1GiB"),
        load_limit_s=600,
    )
    return StudyFile.of("demo", search, here.model_copy(update=environment))


def cache_delta(*, host_tokens: int | None, **changes: Any) -> CacheDelta:
    """Make the counters of one load; `host_tokens` None is an engine without HiCache."""
    device_tokens = 52_000
    cached = device_tokens + (host_tokens or 0)
    host_total = DEVICE_POOL_TOKENS * 3 if host_tokens is not None else None
    figures: dict[str, Any] = {
        "start_ns": 0, "end_ns": 61 * 10**9, "sglang_metrics_version": "0.5.15", "epoch_reset": False,
        "requests": 300, "aborted": 0, "retracted": 0, "prompt_tokens": PROMPT_TOKENS, "generation_tokens": 2_400,
        "cached_tokens": cached, "device_cached_tokens": device_tokens, "host_cached_tokens": host_tokens,
        "storage_cached_tokens": 0, "untiered_cached_tokens": 0, "hit_rate": cached / PROMPT_TOKENS,
        "evicted_tokens": 150_000, "eviction_count": 200, "eviction_seconds": 0.4,
        "load_back_tokens": host_tokens, "load_back_count": 150, "load_back_seconds": 0.1,
        "load_back_seconds_is_bookkeeping": True, "load_back_bytes": None, "backup_tokens": None,
        "at_end": EngineGauges(0.0, 0.0, 90.0, 0.4, DEVICE_POOL_TOKENS, host_tokens, host_total),
        "absent": (),
    }  # fmt: skip
    return CacheDelta(**(figures | changes))


def _summary(path: Path, ttft_s: float, seed: int) -> Summary:
    """Summarise the requests of `_requests`, once for each of its arguments: the bootstrap takes a while."""
    if (ttft_s, seed) not in _SUMMARIES:
        _SUMMARIES[ttft_s, seed] = summarise(read_records(path), not_played=0)
    return _SUMMARIES[ttft_s, seed]


def _requests(ttft_s: float, seed: int) -> list[RequestRecord]:
    """Make 40 sessions of 6 turns, with warm-up before and fillers after them, as every plan has.

    The first turns are cold for every setting, luck goes with the session.
    """
    counted, others = np.random.default_rng(seed), np.random.default_rng(seed + 10_000)
    found = [each for n in range(SESSIONS) for each in _session(n, Phase.COUNTED, ttft_s, counted)]
    for n in range(EDGE_SESSIONS):
        found += _session(n - EDGE_SESSIONS, Phase.WARMUP, ttft_s, others)
        found += _session(n + SESSIONS, Phase.FILLER, ttft_s, others)
    return found


def _session(number: int, phase: Phase, ttft_s: float, random: np.random.Generator) -> list[RequestRecord]:
    found, luck = [], random.lognormal(0, 0.15)
    for turn in range(TURNS):
        base_s = 0.5 if turn == 0 else ttft_s * (0.6 + 0.15 * turn)
        first_s = base_s * luck * random.lognormal(0, 0.25)
        at_ns = round(((number + EDGE_SESSIONS) * 1.4 + turn * 1.5) * 1e9)
        first_ns = at_ns + round(first_s * 1e9)
        found.append(
            RequestRecord(
                f"{phase}{number:03d}", turn, phase, Status.OK, at_ns, at_ns + 10_000, first_ns + 80_000_000,
                first_ns, first_ns + 80_000_000, 8, 400 + 150 * turn, 8, 150 * turn, 100 * turn, 50 * turn, 0, 200,
                delta_gaps_ns=(11_000_000, 13_000_000) * 3,
            )
        )  # fmt: skip
    return found


def _samples(*, hicache: bool) -> pd.DataFrame:
    """Make one minute of samples: memory and scrapes have rows of their own, as the sampler writes them."""
    seconds = np.arange(0, 60, 2)
    memory = pd.DataFrame({"t_ns": seconds * 10**9, "host_available_bytes": 10 * GIB - seconds * 2**24})
    scrapes = pd.DataFrame({"t_ns": seconds * 10**9 + 5, "queued_requests": (seconds % 7).astype(float)})
    if hicache:
        scrapes["host_used_tokens"] = np.minimum(seconds * 500, 18_000)
    rows = pd.concat([memory, scrapes], ignore_index=True).sort_values("t_ns", ignore_index=True)
    whole = ("t_ns", "host_available_bytes", "host_used_tokens", "device_free_bytes")
    columns = dict.fromkeys(whole, "Int64") | {"queued_requests": "Float64"}
    return rows.reindex(columns=list(columns)).astype(columns)


def _effective(setting: Setting) -> Effective:
    host = round(DEVICE_POOL_TOKENS * (setting.hicache_ratio or 8)) if setting.hicache else None
    return Effective(device_pool_tokens=DEVICE_POOL_TOKENS, host_pool_tokens=host, launch_phases_s={"load": 9.5})
