"""One of several load processes: `python -m harness.load.worker JOB.json INDEX PROCESSES PORT`.

A Locust worker of the load process that started it: it plays its share of the plan, tells how it goes, and ends when
it is told to. Its log goes where that of the load process goes.
"""

import locust  # noqa: F401  # first of all imports: it replaces the blocking calls of the standard library by gevent's

# isort: split
import logging
import sys
import time
from pathlib import Path
from typing import Any

from gevent.event import AsyncResult
from locust.runners import WorkerRunner

from harness.errors import HicacheTuneError
from harness.load.crew import BEGIN, HOST, READY, REPORT, STOP
from harness.load.job import LoadJob, Stopped
from harness.load.shares import Played, share_of, write_share
from harness.load.stage import REPORT_S, TICK_S, Stage
from scenarios.plan import read_plan

LINGER_MS = 2000
"""How long the last message may take to leave; a master that is gone must not keep this process."""


def main() -> int:
    """Play one share of the job named on the command line; return the exit code."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    path, index, processes, port = sys.argv[1:]
    try:
        job = LoadJob.read(Path(path))
        stage = Stage(job, share_of(read_plan(job.plan_path), int(index), int(processes)), is_whole=False)
        stage.stop_when_told()
        work(job, stage, int(index), int(port))
    except HicacheTuneError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


def work(job: LoadJob, stage: Stage, index: int, port: int) -> None:
    """Wait for the start, play until the end, and leave records and counts in the job's folder."""
    runner = stage.environment.create_worker_runner(HOST, port)
    started_ns = _meet(runner, stage, index)
    stage.open(runner, started_ns)
    _play(runner, stage, index)
    client = stage.health.report()
    stage.close()
    runner.client.close(linger=LINGER_MS)
    played = Played(
        ended_ns=time.monotonic_ns(), counts=stage.ledger.counts(), client=client, locust_requests=stage.locust_requests
    )
    write_share(job.out_dir, index, played, stage.ledger.records)


def _meet(runner: WorkerRunner, stage: Stage, index: int) -> int:
    """Tell the master that this process is ready, and return when the load starts."""
    begin = AsyncResult()

    def on_begin(msg: Any, **_: object) -> None:
        begin.set(int(msg.data["started_ns"]))

    def on_stop(msg: Any, **_: object) -> None:
        stage.ledger.stop(Stopped(msg.data["why"]))

    runner.register_message(BEGIN, on_begin)
    runner.register_message(STOP, on_stop)
    runner.send_message(READY, {"process": index})
    while not begin.ready() and stage.ledger.stopped is None:
        time.sleep(TICK_S)
    return int(begin.value) if begin.ready() else time.monotonic_ns()


def _play(runner: WorkerRunner, stage: Stage, index: int) -> None:
    """Report every second, and at once when what the end of the load hangs on has changed."""
    ledger, tell_ns, known = stage.ledger, 0, (False, False)
    while ledger.stopped is None and not stage.crashes:
        now_ns, over = (time.monotonic_ns(), (ledger.counted_left == 0, ledger.sessions_left == 0))
        if now_ns >= tell_ns or over != known:
            tell_ns, known = now_ns + round(REPORT_S * 1e9), over
            _report(runner, stage, index)
        stage.health.sleep(TICK_S)
    _report(runner, stage, index)


def _report(runner: WorkerRunner, stage: Stage, index: int) -> None:
    runner.send_message(REPORT, {"process": index, "report": stage.ledger.report().packed()})


if __name__ == "__main__":
    sys.exit(main())
