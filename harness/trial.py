"""One trial: a setting measured once against a live engine.

Preflight says whether a launch is worth its time. The engine is launched, gets ready, is warmed up with prompts
that no session has, and its caches are flushed. Then the sessions of the plan are played while telemetry watches.
When the load has ended the engine drains, its counters are read, and it is stopped to the last process. What was
left behind is checked, and the verdict says whether the measurement may be compared with others.

An engine that the next trial can go on with is not stopped: that one takes it over in place of preflight and launch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.draft import Draft
from harness.engine.attach import check_restarted
from harness.engine.client import EngineClient
from harness.engine.failure import EngineLost, LaunchFailed, classify
from harness.engine.handle import EngineHandle, LaunchContext
from harness.engine.hang import watching_for_a_hang
from harness.engine.preflight import preflight
from harness.engine.readiness import wait_ready
from harness.engine.runtime_changes import as_running
from harness.engine.setting import Setting
from harness.errors import EngineUnreachable, Interrupted, LoadError, TelemetryError
from harness.lab import Lab
from harness.load.job import LoadProgress, Stopped
from harness.load.runner import LoadResult, run_load
from harness.store import ENGINE_LOG_FILE, SAMPLES_FILE, Purpose, TrialRecord, folder_of, write_trial
from harness.telemetry import MetricsSnapshot, sampling
from scenarios.plan import Plan

WARM_UP_REQUESTS = 2
LOST_TERM_S = 2.0
"""An engine that hangs would wait for its requests for ever before it follows SIGTERM."""


def run_trial(lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
    """Measure `setting` once; everything that can go wrong with it is in the record, not raised."""
    folder = folder_of(lab.root, number, purpose)
    folder.mkdir(parents=True, exist_ok=True)
    draft = Draft(lab.watch, number=number, purpose=purpose, setting=setting, plan=plan, slos=lab.slos)
    try:
        engine = _taken_over(lab, draft) or _launched(lab, draft, folder)
        with _ended(lab, draft, engine), lab.client(draft.launch.base_url) as client:
            with draft.step("ready"):
                phases = wait_ready(
                    engine,
                    client,
                    lab.spec.ready,
                    on_phase=draft.launching,
                    should_stop=lab.should_stop,
                    log_tells_phases=draft.launch.log_tells_phases,
                )
                told = as_running(client.server_info())
                draft.ready(told, phases)
                if not lab.spec.here:
                    check_restarted(draft.setting, told)
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
        if lab.kept is None:
            with draft.step("hygiene"):
                draft.memory_back(lab.wait_device_memory_back(draft.idle_free_bytes))
                lab.empty_storage(draft.setting)  # it may be large, and no later trial may use it
    except (LaunchFailed, EngineLost) as problem:
        draft.failed(problem.failure)
    except (LoadError, TelemetryError) as problem:
        draft.spoilt(str(problem))
    except Interrupted:
        draft.interrupted()
    record = draft.verdict()
    write_trial(record, folder)
    return record


def _taken_over(lab: Lab, draft: Draft) -> EngineHandle | None:
    """Go on with the engine that the last trial has left, if it can be made to run this setting."""
    if lab.kept is None:
        return None
    with draft.step("take over"):
        kept = lab.take_over(draft.setting)
    if kept is None:
        return None
    draft.taken_over(kept)
    return kept.engine


def _launched(lab: Lab, draft: Draft, folder: Path) -> EngineHandle:
    """Launch the engine, if preflight lets it."""
    with draft.step("preflight"):
        room = lab.device_room()
        expected = preflight(
            draft.setting,
            lab.spec,
            read_host=lab.host_room,
            device=room,
            learned=lab.learned,
            should_stop=lab.should_stop,
        )
        draft.expected(expected, room)
    with draft.step("launch"):
        lab.starts.end_orphans(lab.ledger)  # an engine that outlived its stop would hold memory that this one needs
        draft.storage(lab.empty_storage(draft.setting))
        draft.launch = lab.starts.plan(draft.setting)
        context = LaunchContext(folder / ENGINE_LOG_FILE, lab.ledger, lab.should_stop)
        return lab.starts.launch(draft.launch, context)


@contextmanager
def _ended(lab: Lab, draft: Draft, engine: EngineHandle) -> Iterator[None]:
    """Stop the engine to the last process whatever happened, unless all went well and the next trial can go on."""
    patience_s = float("inf")
    try:
        yield
        lab.kept = draft.to_keep(engine) if lab.goes_on(draft.setting) else None
    except EngineUnreachable as problem:
        patience_s = LOST_TERM_S
        raise EngineLost(classify(engine.log_text, engine.exit_code, otherwise=str(problem))) from problem
    except EngineLost:
        patience_s = LOST_TERM_S
        raise
    finally:
        if lab.kept is None:
            with draft.step("stop"):
                draft.stopped(engine.stop(term_s=min(lab.stop_term_s(), patience_s), must_hurry=lab.must_hurry))


def _play(lab: Lab, draft: Draft, folder: Path, engine: EngineHandle, client: EngineClient, plan: Plan) -> LoadResult:
    """Play the plan's sessions while telemetry watches; raise EngineLost when the engine dies or hangs under it."""
    with (
        sampling(client.base_url, engine.pids, lab.device, host=lab.host) as sampler,
        watching_for_a_hang(lambda: lab.client(client.base_url), lab.hang_after_s) as hang,
    ):

        def heard(progress: LoadProgress) -> None:
            hang.heard(time.monotonic(), progress.silent_s)
            draft.playing(progress)

        result = run_load(
            lab.load_job(client.base_url, plan, folder),
            on_progress=heard,
            should_stop=lambda: lab.should_stop() or engine.exit_code is not None or bool(hang.said),
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
    if hang.said:
        draft.loaded(result)
        raise EngineLost(hang.failure(engine.log_text))
    return result


def _snapshot(client: EngineClient, path: Path) -> MetricsSnapshot:
    text = client.metrics_text()
    path.write_text(text, encoding="utf-8")
    return MetricsSnapshot.parse(text, where=f"{client.base_url}/metrics")


def _drained(client: EngineClient, path: Path) -> MetricsSnapshot:
    """Read the counters once they stand still: some are written only after the last reply."""
    client.wait_idle()
    return _snapshot(client, path)
