"""The load process: `python -m harness.load.process JOB.json`.

It writes records and outcome into the job's folder, progress as JSON lines on stdout and its log on stderr.
It exits with 0 when the outcome was written, whatever it says. Nothing outside the load processes imports Locust.
"""

import locust  # first of all imports: it replaces the blocking calls of the standard library by gevent's

# isort: split
import logging
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import HicacheTuneError
from harness.files import write_atomically
from harness.load.crew import Crew
from harness.load.job import OUTCOME_FILE, RECORDS_FILE, LoadJob, LoadOutcome, LoadProgress, Stopped
from harness.load.lookout import Lookout
from harness.load.record import write_records
from harness.load.shares import add_counts, merge, processes_of
from harness.load.stage import LOG_FORMAT, REPORT_S, TICK_S, Stage, check
from scenarios.plan import Plan, read_plan


def main() -> int:
    """Play the job named on the command line; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    try:
        run(LoadJob.read(Path(sys.argv[1])))
    except HicacheTuneError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


def run(job: LoadJob) -> LoadOutcome:
    """Play the plan of `job` to its end and write what happened."""
    plan = read_plan(job.plan_path)
    check(job, plan)
    processes = processes_of(plan, job.processes)
    outcome = _play_alone(job, plan) if processes == 1 else _play_together(job, plan, processes)
    write_atomically(job.out_dir / OUTCOME_FILE, outcome.model_dump_json(indent=2))
    return outcome


def _play_alone(job: LoadJob, plan: Plan) -> LoadOutcome:
    stage, lookout = Stage(job, plan, is_whole=True), Lookout(job, plan)
    stage.stop_when_told()
    runner = stage.environment.create_local_runner()
    started_at_utc = _utc()
    stage.open(runner, time.monotonic_ns())
    _watch(job, stage, lookout)
    client = stage.health.report()
    stage.close()
    ended_ns = time.monotonic_ns()
    lookout.hear(0, stage.ledger.report())
    _tell(lookout.progress(ended_ns))
    write_records(stage.ledger.records, job.out_dir / RECORDS_FILE)
    return LoadOutcome(
        started_ns=stage.ledger.started_ns,
        ended_ns=ended_ns,
        started_at_utc=started_at_utc,
        stopped=stage.ledger.stopped or Stopped.INTERRUPTED,
        counts=stage.ledger.counts(),
        clients=(client,),
        lost=lookout.lost,
        locust_requests=stage.locust_requests,
        locust_version=locust.__version__,
        python_version=platform.python_version(),
    )


def _play_together(job: LoadJob, plan: Plan, processes: int) -> LoadOutcome:
    lookout = Lookout(job, plan, processes=processes)
    crew = Crew(job, lookout, processes)
    started_at_utc = _utc()
    stopped = crew.play(_tell)
    played, records = merge(job.out_dir, processes)
    records.to_parquet(job.out_dir / RECORDS_FILE, index=False)
    return LoadOutcome(
        started_ns=crew.started_ns,
        ended_ns=max(share.ended_ns for share in played),
        started_at_utc=started_at_utc,
        stopped=stopped,
        counts=add_counts([share.counts for share in played]),
        clients=tuple(share.client for share in played),
        lost=lookout.lost,
        locust_requests=sum(share.locust_requests for share in played),
        locust_version=locust.__version__,
        python_version=platform.python_version(),
    )


def _watch(job: LoadJob, stage: Stage, lookout: Lookout) -> None:
    """Wait until the load is over, telling how it goes."""
    ledger = stage.ledger
    end_ns = ledger.started_ns + round(job.limit_s * 1e9)
    tell_ns = ledger.started_ns
    while ledger.stopped is None and not stage.crashes:
        now_ns = time.monotonic_ns()
        if now_ns >= end_ns:
            ledger.stop(Stopped.LIMIT)
        if now_ns >= tell_ns:
            tell_ns = now_ns + round(REPORT_S * 1e9)
            lookout.hear(0, ledger.report())
            if why := lookout.why_stop(now_ns):
                ledger.stop(why)
            if not _tell(lookout.progress(now_ns)):
                ledger.stop(Stopped.INTERRUPTED)
        stage.health.sleep(TICK_S)


def _tell(progress: LoadProgress) -> bool:
    """Write the progress; False when the harness is gone, perhaps by SIGKILL: nobody is left to load for."""
    try:
        sys.stdout.write(progress.model_dump_json() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    return True


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    sys.exit(main())
