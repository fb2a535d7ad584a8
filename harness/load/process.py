"""The load process: `python -m harness.load.process JOB.json`.

It writes records and outcome into the job's folder, progress as JSON lines on stdout and its log on stderr.
It exits with 0 when the outcome was written, whatever it says. Nothing outside this process imports Locust.
"""

import locust  # first of all imports: it replaces the blocking calls of the standard library by gevent's

# isort: split
import gc
import logging
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import gevent
from locust.env import Environment

from harness.errors import ConfigError, HicacheTuneError
from harness.files import write_atomically
from harness.load.api import Api, ChatApi, GenerateApi
from harness.load.exchange import Talker
from harness.load.health import HealthMonitor
from harness.load.job import (
    OUTCOME_FILE,
    RECORDS_FILE,
    ApiName,
    LoadJob,
    LoadOutcome,
    Stopped,
)
from harness.load.ledger import Ledger
from harness.load.player import Player
from harness.load.record import RequestRecord, Status, write_records
from harness.load.users import SessionUser
from harness.load.wire import Endpoint
from scenarios.plan import Plan, read_plan

TICK_S = 0.02
PROGRESS_S = 1.0


def main() -> int:
    """Play the job named on the command line; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        run(LoadJob.read(Path(sys.argv[1])))
    except HicacheTuneError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


def run(job: LoadJob) -> LoadOutcome:
    """Play the plan of `job` to its end and write what happened."""
    plan = read_plan(job.plan_path)
    api = _api(job)
    api.check(plan)
    _allow_connections()
    ledger = Ledger(plan, refusals_before_lost=job.refusals_before_lost)
    environment = Environment(user_classes=[SessionUser])
    SessionUser.ledger = ledger
    talker = Talker(
        api.path,
        Endpoint.of(job.base_url),
        _headers(job),
        job.timeouts,
        ledger,
        lambda record: _tell_locust(environment, api, record),
    )
    SessionUser.player = Player(api, talker, ledger)
    outcome = _play(plan, job, ledger, environment)
    write_records(ledger.records, job.out_dir / RECORDS_FILE)
    write_atomically(job.out_dir / OUTCOME_FILE, outcome.model_dump_json(indent=2))
    return outcome


def _play(plan: Plan, job: LoadJob, ledger: Ledger, environment: Environment) -> LoadOutcome:
    crashes: list[BaseException] = []
    environment.events.user_error.add_listener(lambda exception, **_: crashes.append(exception))
    _stop_when_told(ledger)
    # The plan is large and lives until the end: out of the collector's sight it costs no pauses.
    gc.collect()
    gc.freeze()
    runner = environment.create_local_runner()
    health = HealthMonitor()
    health.start()
    started_at_utc = datetime.now(UTC).isoformat(timespec="milliseconds")
    ledger.started_ns = time.monotonic_ns()
    if not plan.sessions:
        ledger.stop(Stopped.COMPLETE)
    else:
        runner.start(plan.slots, spawn_rate=plan.slots)
    _watch(job, ledger, health, crashes)
    runner.quit()  # kills the users: what is still running is recorded as cut
    _report_progress(ledger)
    if crashes:
        raise crashes[0]
    return LoadOutcome(
        started_ns=ledger.started_ns,
        ended_ns=time.monotonic_ns(),
        started_at_utc=started_at_utc,
        stopped=ledger.stopped or Stopped.INTERRUPTED,
        counts=ledger.counts(),
        client=health.report(),
        locust_requests=environment.stats.total.num_requests,
        locust_version=locust.__version__,
        python_version=platform.python_version(),
    )


def _watch(job: LoadJob, ledger: Ledger, health: HealthMonitor, crashes: list[BaseException]) -> None:
    """Wait until the load is over, telling how it goes."""
    end_ns = ledger.started_ns + round(job.limit_s * 1e9)
    tell_ns = ledger.started_ns
    while ledger.stopped is None and not crashes:
        now_ns = time.monotonic_ns()
        if now_ns >= end_ns:
            ledger.stop(Stopped.LIMIT)
        if now_ns >= tell_ns:
            tell_ns = now_ns + round(PROGRESS_S * 1e9)
            _report_progress(ledger)
        health.sleep(TICK_S)


def _report_progress(ledger: Ledger) -> None:
    try:
        sys.stdout.write(ledger.progress().model_dump_json() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the harness is gone, perhaps by SIGKILL: nobody is left to load for
        ledger.stop(Stopped.INTERRUPTED)


def _stop_when_told(ledger: Ledger) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, ledger.stop, Stopped.INTERRUPTED)


def _tell_locust(environment: Environment, api: Api, record: RequestRecord) -> None:
    environment.events.request.fire(
        request_type="POST",
        name=api.path,
        response_time=(record.end_ns - record.sent_ns) / 1e6,
        response_length=0,
        exception=None if record.status is Status.OK else record.error,
        context={},
    )


def _api(job: LoadJob) -> Api:
    if job.api is ApiName.CHAT:
        return ChatApi(job.model, job.ignore_eos, job.absent_cache_means_zero)
    return GenerateApi(job.ignore_eos)


def _headers(job: LoadJob) -> Mapping[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **job.headers}
    if job.api_key_env is not None:
        key = os.environ.get(job.api_key_env)
        if not key:
            raise ConfigError(f"the environment variable {job.api_key_env} holds no API key; set it")
        headers["Authorization"] = f"Bearer {key}"
    return headers


def _allow_connections() -> None:
    """One connection a slot: the usual soft limit of 1,024 files would refuse the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
