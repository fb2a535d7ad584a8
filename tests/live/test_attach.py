"""A search of an engine that somebody else runs: measured as it is, and restarted by the user's own script."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from harness.engine.cpu.engine import find
from harness.store import Outcome, read_trials
from tests.support import cli
from tests.support.cpu_engine import free_port, launched

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

SEARCH = (
    *("search", "--engine", "attach", "--scenario", "cpu-smoke", "--concurrency", "1", "--sessions", "1"),
    *("--study", "s", "--json"),
)
RUNNING = ("--enable-hierarchical-cache", "--hicache-ratio", "3", "--page-size", "16")

RESTART = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
here = Path(__file__).parent
launch = json.loads((here / "launch.json").read_text())
if (here / "pid").exists():
    os.killpg(int((here / "pid").read_text()), signal.SIGKILL)
    while not socket.socket().connect_ex(("127.0.0.1", launch["port"])):
        time.sleep(0.1)
with (here / "engine.log").open("w") as log:
    argv, env = [*launch["argv"], *sys.argv[1:]], {**os.environ, **launch["env"]}
    engine = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
(here / "pid").write_text(str(engine.pid))
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    """Make the folder of somebody's server, with a script that restarts it; end it at last."""
    engine, port = find(), free_port()
    argv = [str(engine.python), "-m", "sglang.launch_server", "--model-path", str(engine.model_path)]
    argv += ["--port", str(port), *engine.base_flags]
    (tmp_path / "launch.json").write_text(json.dumps({"argv": argv, "env": engine.env(), "port": port}))
    (tmp_path / "restart.py").write_text(RESTART)
    yield tmp_path
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def wait_healthy(url: str, limit_s: float = 180.0) -> None:
    """Wait until the engine at `url` is healthy."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=30, trust_env=False).is_success:
                return
        time.sleep(0.5)
    raise AssertionError(f"{url} is not healthy after {limit_s:g} s")


def test_what_runs_is_measured_and_goes_on_running(tmp_path: Path) -> None:
    """Without a hook there is one setting; its server is left as it was."""
    with launched(find(), tmp_path / "engine.log", *RUNNING) as engine:
        url = str(engine.client.base_url)
        run = cli.start([*SEARCH, "--url", url, "--confirm-rounds", "1"], tmp_path)
        assert run.wait(limit_s=300) == 0, run.said()
        assert engine.client.get("/health").is_success
        run.wait_nothing_left(limit_s=5)
    trials = read_trials(tmp_path / "results/s")
    assert [(t.purpose, t.outcome) for t in trials] == [("search", Outcome.MEASURED), ("confirm", Outcome.MEASURED)]
    assert {(t.setting.hicache, t.setting.hicache_ratio, t.setting.page_size) for t in trials} == {(True, 3.0, 16)}
    assert all(t.argv == () and t.hygiene.stop is None and t.hygiene.first_request_cached_tokens == 0 for t in trials)
    verdict = cli.printed_json(tmp_path)["verdict"]
    assert (verdict["kind"], verdict["launch_command"]) == ("measured", None)


def test_the_user_s_script_restarts_the_engine_for_each_setting(host: Path) -> None:
    """Both baselines really ran on the restarted server, which goes on running; the answer is the user's command."""
    hook = [sys.executable, str(host / "restart.py")]
    subprocess.run([*hook, *RUNNING], check=True, timeout=60)
    url = f"http://127.0.0.1:{json.loads((host / 'launch.json').read_text())['port']}"
    wait_healthy(url)
    words = [f"--restart-hook={word}" for word in hook]
    run = cli.start([*SEARCH, "--url", url, *words, "--trials", "2", "--confirm-rounds", "0"], host)
    assert run.wait(limit_s=400) == 0, run.said()
    off, on = read_trials(host / "results/s")
    assert [t.outcome for t in (off, on)] == [Outcome.MEASURED] * 2
    assert [t.setting.hicache for t in (off, on)] == [False, True]
    assert off.effective is not None
    assert on.effective is not None
    assert on.effective.mismatches == off.effective.mismatches == ()
    assert (off.effective.host_pool_tokens, bool(on.effective.host_pool_tokens)) == (None, True)
    assert on.command == (*hook, "--enable-metrics", "--enable-cache-report", *on.setting.flags())
    assert cli.printed_json(host)["verdict"]["launch_command"].startswith(f"{hook[0]} {hook[1]} --enable-metrics")
    assert f"The server at {url} still runs what was measured last: HiCache ratio 2" in " ".join(run.said().split())
    assert not (host / "results/s/running.json").exists()
    wait_healthy(url, limit_s=5)
    os.killpg(int((host / "pid").read_text()), signal.SIGKILL)
    run.wait_nothing_left(limit_s=10)
