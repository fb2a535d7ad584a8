"""Several load processes play what one would: the same requests, no record lost, and none left behind when one dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.errors import LoadError
from harness.load.job import JOB_FILE, LoadJob, LoadProgress, Stopped
from harness.load.runner import CODE_ROOT, LoadResult
from scenarios.plan import Phase, Plan, Session
from tests.support.fixture_server import Ending, FixtureServer, Script
from tests.support.loads import chat_session, job_for, open_plan_of, plan_of, play
from tests.support.processes import children_running

pytestmark = pytest.mark.contract


@pytest.fixture
def server() -> Iterator[FixtureServer]:
    """A server that answers at once, until a test gives it another script."""
    with FixtureServer() as running:
        yield running


def sessions() -> list[Session]:
    """Make sessions of all phases that are played to their end, apart from the fillers."""
    kinds = [(Phase.WARMUP, 4), (Phase.COUNTED, 7)]
    return [chat_session(f"{phase}{n}", 1 + n % 3, phase=phase) for phase, count in kinds for n in range(count)]


PLANS = {
    "closed": plan_of(*sessions(), slots=3),
    "open": open_plan_of(*(chat_session(f"s{n}", 2, start_s=0.05 * n) for n in range(9))),
}


def requests_of(result: LoadResult) -> list[tuple[str, int]]:
    """Name every request by its session and turn."""
    return sorted(zip(result.records["session_id"], result.records["turn"], strict=True))


def workers_of(pid: int) -> list[psutil.Process]:
    """Find the workers under a process."""
    return children_running("harness.load.worker", pid)


@pytest.mark.parametrize("name", PLANS)
def test_two_processes_play_what_one_plays(name: str, tmp_path: Path) -> None:
    """The same sessions and turns, the same headers and bodies, and records that say the same but for their times."""
    found = []
    for processes in (1, 2):
        with FixtureServer() as server:
            folder = tmp_path / str(processes)
            folder.mkdir()
            result = play(server, PLANS[name], folder, processes=processes, session_header="X-Session")
            bodies = sorted(json.dumps([seen.path, seen.body]) for seen in server.seen)
            without = {"host", "connection"}
            headers = sorted(str(sorted((k, v) for k, v in s.headers.items() if k not in without)) for s in server.seen)
            found.append((requests_of(result), bodies, headers, list(result.records.dtypes.items())))
            counts = result.outcome.of(Phase.COUNTED)
            assert (result.outcome.stopped, len(result.outcome.clients)) == (Stopped.COMPLETE, processes)
            assert counts.ok == PLANS[name].counted_turns
            assert result.outcome.sent == len(result.records) == result.outcome.locust_requests
            assert result.records["end_ns"].is_monotonic_increasing
            names = {path.name for path in (folder / "out").iterdir()}
            assert names == {"load_job.json", "load.json", "load.log", "requests.parquet"}
    assert found[0] == found[1]


def test_fillers_go_on_everywhere_until_the_last_counted_session_has_ended(
    server: FixtureServer, tmp_path: Path
) -> None:
    """The process that has no counted session left keeps its slots busy for the others."""
    server.script = lambda seen: Script(first_token_s=4.0 if seen.first_words == "slow" else 0.05)
    fillers = [chat_session(f"f{n}", 400, phase=Phase.FILLER) for n in range(2)]
    result = play(
        server, plan_of(chat_session("slow"), chat_session("quick"), *fillers, slots=2), tmp_path, processes=2
    )
    assert result.outcome.stopped is Stopped.COMPLETE
    ends = result.records.groupby("session_id")["end_ns"].max()
    assert ends["f1"] >= ends["slow"] > ends["quick"]
    assert not result.outcome.locust_was_reset, "a worker tells Locust's master of its counts every 3 s"


def test_progress_is_told_for_all_processes(server: FixtureServer, tmp_path: Path) -> None:
    """The last word counts every turn."""
    told: list[LoadProgress] = []
    play(server, PLANS["closed"], tmp_path, processes=2, on_progress=told.append)
    assert (told[-1].done, told[-1].of) == (PLANS["closed"].counted_turns,) * 2
    assert told[-1].ttft_p50_ms is not None


def test_a_lost_engine_ends_all_processes(server: FixtureServer, tmp_path: Path) -> None:
    """What one process finds out is enough; all records are kept."""
    plan = plan_of(*(chat_session(f"s{n}", 2, think_s=0.05) for n in range(200)), slots=4)

    def kill_once() -> bool:
        if len(server.seen) > 8 and server.port:
            server.die()
            server.port = 0
        return False

    result = play(server, plan, tmp_path, processes=2, should_stop=kill_once)
    assert result.outcome.stopped is Stopped.ENGINE_LOST
    assert result.outcome.sent == len(result.records) > 8


def test_a_stop_leaves_the_records_of_all_processes(server: FixtureServer, tmp_path: Path) -> None:
    """Running requests are cut in every process, and each has its record."""
    server.script = lambda _: Script(ending=Ending.HANG)
    plan = plan_of(*(chat_session(f"s{n}") for n in range(4)))
    result = play(server, plan, tmp_path, processes=2, should_stop=lambda: len(server.seen) == 4)
    assert result.outcome.stopped is Stopped.INTERRUPTED
    assert list(result.records["status"]) == ["cut"] * 4


def test_a_worker_that_dies_is_no_measurement(server: FixtureServer, tmp_path: Path) -> None:
    """The load ends at once and says so; the other worker goes too."""
    server.script = lambda _: Script(ending=Ending.HANG)
    workers: list[psutil.Process] = []

    def kill_one(_: LoadProgress) -> None:
        if not workers and len(server.seen) == 2:
            workers.extend(workers_of(psutil.Process().pid))
            workers[0].kill()

    with pytest.raises(LoadError, match=r"load process [12] of 2 was killed by signal 9 in the middle of the load"):
        play(server, plan_of(chat_session("a"), chat_session("b")), tmp_path, processes=2, on_progress=kill_one)
    assert len(workers) == 2
    assert psutil.wait_procs(workers, timeout=30)[1] == []


def hanging(server: FixtureServer, folder: Path) -> LoadJob:
    """Make a job for two processes that never ends by itself."""
    server.script = lambda _: Script(ending=Ending.HANG)
    plan: Plan = plan_of(chat_session("a"), chat_session("b"))
    job = job_for(server, plan, folder, processes=2, limit_s=300)
    job.out_dir.mkdir()
    (job.out_dir / JOB_FILE).write_text(job.model_dump_json(), encoding="utf-8")
    return job


@pytest.mark.parametrize("killed", ["the load process", "the harness"])
def test_workers_die_with_whoever_started_them(server: FixtureServer, tmp_path: Path, killed: str) -> None:
    """SIGKILL of the load process, or of the harness above it, leaves nobody who loads the engine."""
    job = hanging(server, tmp_path)
    harness = (
        "import sys; from pathlib import Path\n"
        "from harness.load.job import LoadJob; from harness.load.runner import run_load\n"
        "run_load(LoadJob.read(Path(sys.argv[1])), on_progress=lambda p: print(p.in_flight, flush=True))\n"
    )
    argv = [sys.executable, "-c", harness, str(job.out_dir / JOB_FILE)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=CODE_ROOT) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "2":
            assert process.poll() is None
        (load,) = children_running("harness.load.process", process.pid)
        workers = workers_of(load.pid)
        (load if killed == "the load process" else process).kill()
        assert len(workers) == 2
        assert psutil.wait_procs([load, *workers], timeout=60)[1] == []
        process.stdout.close()
