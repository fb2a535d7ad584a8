"""A whole search of the fake engine in a few seconds, in a process of its own that may be killed.

Only the load is played in the harness's own process here: starting Locust takes longer than all of such a trial.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from harness import trial
from harness.engine.client import EngineClient
from harness.engine.setting import Setting
from harness.errors import EngineError
from harness.load.job import RECORDS_FILE, ApiName, ClientHealth, LoadJob, LoadOutcome, PhaseCounts, Stopped
from harness.load.record import RequestRecord, Status, read_records, write_records
from harness.load.runner import LoadResult
from harness.telemetry import NvmlUnavailable
from scenarios.plan import Phase, Plan, read_plan
from tests.support.cli import MARKER
from tests.support.fake_lab import FakeLab, FakeSpec, write_metrics
from tests.support.loads import chat_session, plan_of
from tests.support.simulated_search import OBJECTIVE, SEED, QuietWatch
from tuning.config import Effort
from tuning.samplers import Samplers
from tuning.search import Searcher
from tuning.space import Ranges
from tuning.study import Study

SPACE = Ranges(hicache_ratio="1.5:6:0.5").space()
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


class FakeLife:
    """One process that searches the study in `root`, from where the last one has left it."""

    def __init__(self, root: Path, trials: int) -> None:
        self.marker = f"{os.getpid()}-{time.monotonic_ns()}"
        self._process: ForkServerProcess = _forks.Process(target=_search, args=(root, self.marker, trials))
        self._process.start()

    @property
    def pid(self) -> int:
        """The harness's pid."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """0 when the search is finished, 1 when the engine made it stop, None while it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        """Kill the harness at once."""
        self._process.kill()
        self._process.join()


def _search(root: Path, marker: str, trials: int) -> None:
    root.mkdir(exist_ok=True)
    spec = FakeSpec(
        python=Path(sys.executable),
        model="m",
        sglang_version="0.5.15",
        base_flags=("--metrics", str(write_metrics(root))),
        env={MARKER: marker},
        device=f"fake-{os.getppid()}",
    )
    watch = QuietWatch()
    lab = FakeLab(
        root=root,
        spec=spec,
        watch=watch,
        should_stop=lambda: False,
        must_hurry=lambda: False,
        api=ApiName.CHAT,
        load_limit_s=30,
        warm_up_tokens=50,
        device=NvmlUnavailable("no GPU"),
    )
    searcher = Searcher(
        lab=lab,
        study=Study(root / "study.db", samplers=Samplers("auto", SPACE, Setting.canonical, SEED), objective=OBJECTIVE),
        objective=OBJECTIVE,
        effort=Effort(trials=trials, confirm_top=0, confirm_rounds=0, ready_timeout_s=30),
        watch=watch,
        make_plan=lambda seed: Plan("fake", seed, 2, plan_of(chat_session("a", 3), chat_session("b", 3)).sessions),
        seed=SEED,
    )
    with patch.object(trial, "run_load", _play), patch.object(EngineClient, "wait_idle", lambda _: None):
        try:
            searcher.run()
        except EngineError:
            sys.exit(1)


def _play(job: LoadJob, **_: Any) -> LoadResult:
    """Play the plan turn by turn, until the engine does not answer any more."""
    plan, began_ns = read_plan(job.plan_path), time.monotonic_ns()
    turns = [(session.session_id, number) for session in plan.sessions for number, _turn in enumerate(session.turns)]
    records: list[RequestRecord] = []
    with suppress(httpx.HTTPError), httpx.Client(base_url=job.base_url, trust_env=False) as client:
        for session, number in turns:
            records.append(_ask(client, session, number, is_first=not records))
    stopped = Stopped.COMPLETE if len(records) == len(turns) else Stopped.ENGINE_LOST
    write_records(records, job.out_dir / RECORDS_FILE)
    outcome = LoadOutcome(
        started_ns=began_ns,
        ended_ns=time.monotonic_ns(),
        started_at_utc="2026-11-30T08:00:00+00:00",
        stopped=stopped,
        counts=(PhaseCounts(phase=Phase.COUNTED, ok=len(records), not_played=len(turns) - len(records)),),
        clients=(ClientHealth(cpu_fraction=0, lag_p99_ms=0, lag_max_ms=0, gc_pause_ms=0),),
        locust_requests=len(records),
        locust_version="none",
        python_version="3",
    )
    return LoadResult(outcome, read_records(job.out_dir / RECORDS_FILE))


def _ask(client: httpx.Client, session: str, number: int, *, is_first: bool) -> RequestRecord:
    sent_ns = time.monotonic_ns()
    client.post("/v1/chat/completions", json={}).raise_for_status()
    ended_ns = time.monotonic_ns()
    cached = 0 if is_first else 128
    return RequestRecord(
        *(session, number, Phase.COUNTED, Status.OK, sent_ns, sent_ns, ended_ns, ended_ns, ended_ns),
        chunks=1,
        prompt_tokens=200,
        output_tokens=3,
        cached_tokens=cached,
        device_cached_tokens=cached,
        host_cached_tokens=0,
        storage_cached_tokens=0,
        http_status=200,
    )
