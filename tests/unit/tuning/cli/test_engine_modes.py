"""`--engine docker` and `--engine attach`, and names of older articles: what is measured, printed and refused."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.engine.flag_source import SHIPPED
from tests.support import processes
from tests.support.console import Run, Said
from tests.support.simulated import SimulatedEngine

KEY = "sesame"


class Server:
    """A server that says what it runs, to those who have its key if it has one."""

    def __init__(self, model: Path) -> None:
        self.info: dict[str, Any] = {
            "version": "0.5.15",
            "model_path": str(model),
            "device": "cuda",
            "enable_metrics": True,
            "enable_cache_report": True,
            "enable_hierarchical_cache": True,
            "hicache_ratio": 3.0,
            "hicache_size": 0,
            "hicache_io_backend": "direct",
            "hicache_mem_layout": "layer_first",
            "page_size": 64,
        }
        self.key = ""
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        allowed = not self.key or request.headers.get("Authorization") == f"Bearer {self.key}"
        text = json.dumps(self.info).encode() if allowed else b""
        request.send_response(200 if allowed else 401)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)


@pytest.fixture
def server(model: Path) -> Iterator[Server]:
    """Run a server on loopback."""
    found = Server(model)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.answer(self)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{listening.server_address[1]}"
        yield found
        listening.shutdown()


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    """Make a program that could restart the server."""
    program = tmp_path / "restart"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def attach(server: Server, *more: str) -> tuple[str, ...]:
    """Write the words of a search of the server."""
    return ("search", "--engine", "attach", "--url", server.url, "--study", "s", "--scenario", "cpu-smoke", *more)


def verdict(said: Said) -> dict[str, Any]:
    """Return the verdict that was printed as JSON."""
    found: dict[str, Any] = json.loads(said.out)["verdict"]
    return found


def test_without_a_hook_only_what_runs_is_measured(run: Run, engine: SimulatedEngine, server: Server) -> None:
    """Once, and again on fresh seeds; there is nothing to compare it with and nothing to launch."""
    said = run(*attach(server, "--json", "--sessions", "4"))
    assert said.code == 0, said.err
    assert [purpose for purpose, _, _ in engine.asked] == ["search", "confirm", "confirm"]
    (setting,) = {setting.key: setting for _, setting, _ in engine.asked}.values()
    assert (setting.hicache_ratio, setting.page_size, setting.hicache_io_backend) == (3.0, 64, "direct")
    assert (verdict(said)["kind"], verdict(said)["launch_command"]) == ("measured", None)
    assert "nothing restarts this engine, so no other setting was measured" in verdict(said)["sentence"]
    assert json.loads(run("report", "s", "--json").out)["verdict"] == verdict(said)


def test_a_server_that_runs_something_else_is_another_study(run: Run, engine: SimulatedEngine, server: Server) -> None:
    """A resume never pools measurements of two settings of the server."""
    assert run(*attach(server, "--confirm-rounds", "0")).code == 0
    server.info["page_size"] = 32
    again = run(*attach(server, "--resume"))
    assert again.code == 1
    assert "page_size: was 64, is 32" in again.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--hicache-ratio", "2,3"), "--hicache-ratio: nothing restarts the server, so only the setting that it runs"),
        (("--search", "schedule-policy=fcfs,lpm"), "--search: nothing restarts the server"),
        (("--engine-arg=--schedule-policy=lpm",), "--engine-arg: nothing restarts the engine; give --restart-hook"),
        (("--tp-size", "2"), "--tp-size is for --engine local or docker, not attach; leave it out"),
        (("--restart-hook", "no-such-program"), "restart hook no-such-program: no such program; give its path"),
    ],
)
def test_what_needs_a_restart_is_refused_without_a_hook(
    run: Run, server: Server, flags: tuple[str, ...], said: str
) -> None:
    """And a hook that does not exist is named before anything is measured."""
    answer = run(*attach(server, *flags))
    assert answer.code == 1
    assert answer.err.startswith(f"hicache-tune: {said}")
    assert not Path("results").exists()


def test_a_server_that_hides_its_caches_is_refused(run: Run, server: Server) -> None:
    """What cannot be seen is not measured."""
    server.info["enable_cache_report"] = False
    answer = run(*attach(server))
    assert answer.code == 1
    assert "runs without --enable-cache-report, so its caches cannot be seen; restart it with them" in answer.err


def test_the_key_is_named_and_never_shown(
    run: Run, engine: SimulatedEngine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from the environment; neither the screen nor the results have it."""
    server.key = KEY
    refused = run(*attach(server))
    assert refused.code == 1
    assert "answered /server_info with 401" in refused.err
    monkeypatch.setenv("THE_KEY", KEY)
    said = run(*attach(server, "--api-key-env", "THE_KEY", "--confirm-rounds", "0", "--json"))
    assert said.code == 0
    kept = [path.read_bytes() for path in Path("results").rglob("*") if path.is_file()]
    assert kept
    assert not any(KEY.encode() in text for text in (said.out.encode(), said.err.encode(), *kept))


def test_a_dry_run_shows_the_user_s_own_restart(run: Run, server: Server, hook: Path) -> None:
    """With every flag that the hook would get, and none of where the server listens."""
    Path("hicache-tune.toml").write_text(f'[search]\nrestart-hook = ["{hook}", "pod-1"]\n', encoding="utf-8")
    said = run(*attach(server, "--dry-run", "--trials", "2"))
    assert said.code == 0, said.err
    off, on = [line for line in said.err.splitlines() if line.startswith(str(hook))]
    assert off == f"{hook} pod-1 --enable-metrics --enable-cache-report"
    assert on.startswith(f"{off} --enable-hierarchical-cache --hicache-ratio 2.0")


def test_a_hook_that_reads_json_is_answered_by_a_launch(run: Run, server: Server, hook: Path, model: Path) -> None:
    """Its own words do not say the setting."""
    said = run(*attach(server, "--dry-run", "--trials", "2", "--restart-hook", str(hook), "--restart-input", "json"))
    assert said.code == 0, said.err
    assert f"python -m sglang.launch_server --model-path {model} --enable-metrics" in said.err


def test_a_dry_run_in_docker(run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is the user's: the usual port, and none of the names by which we find our own containers."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    fake = Path(processes.__file__).with_name("fake_docker.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_DOCKER_HOME", str(tmp_path / "containers"))
    monkeypatch.setenv("FAKE_DOCKER_FLAGS", str(SHIPPED / "flags-0.5.15.json"))
    said = run("search", "--engine", "docker", "--image", "sglang", "--model", str(model), "--dry-run", "--trials", "2")
    assert said.code == 0, said.err
    _, on = [line for line in said.err.splitlines() if line.startswith("docker run")]
    assert "--publish 127.0.0.1:30000:30000" in on
    assert f"--volume {model}:/model:ro" in on
    assert "--enable-hierarchical-cache --hicache-ratio 2.0" in on
    assert "hicache-tune" not in on.replace(str(model), "")
    assert "--cidfile" not in on


def test_flags_of_older_articles_are_taken_with_a_note(run: Run) -> None:
    """`--enable-hicache` and a total of host memory, as a widely copied launch command has them."""
    old = ("--enable-hicache", "--hicache-host-memory-gb", "2")
    said = run("search", "--engine", "cpu", "--scenario", "cpu-smoke", "--dry-run", "--trials", "2", *old)
    assert said.code == 0
    assert "note: --enable-hicache is the engine's flag; taken as `--hicache on`" in said.err
    assert "note: --hicache-host-memory-gb is an older name; taken as --hicache-size" in said.err
    assert "  hicache: on\n" in said.err
    assert "  hicache_size: 2 (with HiCache)\n" in said.err


def test_a_limit_of_what_runs(run: Run, server: Server) -> None:
    """A search for a limit takes the server's own setting, and has nothing to launch."""
    words = ("find-limit", *attach(server, "--dry-run", "--start-rate", "0.5")[1:])
    said = run(*words)
    assert said.code == 0, said.err
    assert said.err.startswith("HiCache ratio 3, write_through, direct/layer_first, page 64\nscenario cpu-smoke; ")


def test_a_port_of_every_launch_may_differ_on_a_resume(run: Run, engine: SimulatedEngine) -> None:
    """How an engine is reached says nothing of what is measured."""
    words = ("search", "--engine", "cpu", "--scenario", "cpu-smoke", "--study", "s", "--confirm-rounds", "0")
    assert run(*words, "--trials", "2", "--engine-port", "23000").code == 0
    assert run(*words, "--trials", "3", "--engine-port", "23001", "--resume").code == 0
