"""One trial: a setting measured once against a live engine.

Preflight says whether a launch is worth its time. The engine is launched, gets ready, is warmed up with prompts
that no session has, and its caches are flushed. Then the sessions of the plan are played while telemetry watches.
When the load has ended the engine drains, its counters are read, and it is stopped to the last process. What was
left behind is checked, and the verdict says whether the measurement may be compared with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.draft import Draft
from harness.engine.client import EngineClient
from harness.engine.failure import EngineLost, LaunchFailed, classify
from harness.engine.preflight import check_host_pool
from harness.engine.process import EngineProcess, free_port
from harness.engine.readiness import wait_ready
from harness.engine.setting import Setting
from harness.errors import EngineUnreachable, Interrupted, LoadError, TelemetryError
from harness.lab import Lab
from harness.load.job import Stopped
from harness.load.runner import LoadResult, run_load
from harness.store import ENGINE_LOG_FILE, SAMPLES_FILE, Purpose, TrialRecord, folder_of, write_trial
from harness.telemetry import MetricsSnapshot, sampling
from scenarios.plan import Plan

WARM_UP_REQUESTS = 2


def run_trial(lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
    """Measure `setting` once; everything that can go wrong with it is in the record, not raised."""
    folder = folder_of(lab.root, number, purpose)
    folder.mkdir(parents=True, exist_ok=True)
    draft = Draft(lab.watch, number=number, purpose=purpose, setting=setting, plan=plan)
    try:
        with draft.step("preflight"):
            check_host_pool(
                setting,
                lab.spec,
                lab.host_room,
                device_pool_bytes=lab.device_pool_bytes,
                should_stop=lab.should_stop,
            )
            idle_free_bytes = lab.device_free_bytes()
        with _launched(lab, draft, folder) as engine, lab.client(engine.port) as client:
            with draft.step("ready"):
                phases = wait_ready(
                    engine, client, lab.spec.ready, on_phase=draft.launching, should_stop=lab.should_stop
                )
                draft.ready(client.server_info(), phases)
                engine.pin(lab.spec.engine_cpus)
            with draft.step("warm-up"):
                client.warm_up(requests=WARM_UP_REQUESTS, prompt_tokens=lab.warm_up_tokens)
                draft.flushed(client.flush_cache())
                before = _snapshot(client, folder / "metrics_before.txt")
            with draft.step("load"):
                draft.loaded(_play(lab, draft, folder, engine, client, plan))
            with draft.step("drain"):
                after = _drained(client, folder / "metrics_after.txt")
                draft.counted(before, after, lab.spec)
        with draft.step("hygiene"):
            draft.memory_back(lab.wait_device_memory_back(idle_free_bytes))
    except (LaunchFailed, EngineLost) as problem:
        draft.failed(problem.failure)
    except (LoadError, TelemetryError) as problem:
        draft.spoilt(str(problem))
    except Interrupted:
        draft.interrupted()
    record = draft.verdict()
    write_trial(record, folder)
    return record


@contextmanager
def _launched(lab: Lab, draft: Draft, folder: Path) -> Iterator[EngineProcess]:
    """Launch the engine, and stop it to the last process whatever happens in between."""
    with draft.step("launch"):
        lab.ledger.end_orphans()  # an engine that outlived its stop would hold memory that this one needs
        port = free_port(lab.spec.host)
        draft.argv, draft.env = tuple(lab.spec.argv(draft.setting, port)), dict(lab.spec.env)
        engine = EngineProcess.launch(
            draft.argv, env=draft.env, port=port, log_path=folder / ENGINE_LOG_FILE, book=lab.ledger
        )
    try:
        yield engine
    except EngineUnreachable as problem:
        raise EngineLost(classify(engine.log_text, engine.exit_code, otherwise=str(problem))) from problem
    finally:
        with draft.step("stop"):
            draft.stopped(engine.stop(term_s=lab.stop_term_s(), must_hurry=lab.must_hurry))


def _play(lab: Lab, draft: Draft, folder: Path, engine: EngineProcess, client: EngineClient, plan: Plan) -> LoadResult:
    """Play the plan's sessions while telemetry watches; raise EngineLost when the engine dies under it."""
    with sampling(client.base_url, engine.pids, lab.device) as sampler:
        result = run_load(
            lab.load_job(client.base_url, plan, folder),
            on_progress=draft.playing,
            should_stop=lambda: lab.should_stop() or engine.exit_code is not None,
            cpus=lab.spec.load_cpus or None,
        )
    telemetry = sampler.result()
    telemetry.write_samples(folder / SAMPLES_FILE)
    draft.watched(telemetry)
    if lab.should_stop() and result.outcome.stopped is not Stopped.COMPLETE:
        raise Interrupted
    if engine.exit_code is not None or result.outcome.stopped is Stopped.ENGINE_LOST:
        draft.loaded(result)
        raise EngineLost(classify(engine.log_text, engine.exit_code, under_load=True))
    return result


def _snapshot(client: EngineClient, path: Path) -> MetricsSnapshot:
    text = client.metrics_text()
    path.write_text(text, encoding="utf-8")
    return MetricsSnapshot.parse(text, where=f"{client.base_url}/metrics")


def _drained(client: EngineClient, path: Path) -> MetricsSnapshot:
    """Read the counters once they stand still: some are written only after the last reply."""
    client.wait_idle()
    return _snapshot(client, path)
