"""The engine as a process: real children of a few lines, launched, watched and stopped to the last one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from harness.engine import ledger, process
from harness.engine.ledger import Ledger, Owned
from harness.engine.process import (
    SIGINTS,
    SIGTERM_ALONE,
    EngineProcess,
    StopProof,
    free_port,
    port_is_free,
    wait_port_free,
)
from harness.errors import EngineMissing, StoreError
from tests.support.processes import DEAF, SLEEP, alive, wait_for, with_child

Launch = Callable[..., EngineProcess]
LISTEN = (
    "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
    "print('up', flush=True); time.sleep(600)"
)

HEEDS_NO_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Launch a program of Python as the engine and wait for its line `up`; stop it after the test."""
    launched = []

    def start(
        code: str,
        *,
        port: int | None = None,
        env: dict[str, str] | None = None,
        stop_signals: Sequence[signal.Signals] = SIGTERM_ALONE,
    ) -> EngineProcess:
        port = port or free_port()
        engine = EngineProcess.launch(
            [sys.executable, "-c", code, str(port)],
            env=env or {},
            port=port,
            log_path=tmp_path / "engine.log",
            book=Ledger(tmp_path / "running.json"),
            stop_signals=stop_signals,
        )
        launched.append(engine)
        wait_for(lambda: "up" in engine.log_text, "up")
        return engine

    yield start
    for engine in launched:
        engine.stop(term_s=0)


def child_of(engine: EngineProcess) -> int:
    """Return the pid that a program of `with_child` has printed."""
    return int(engine.log_text.split()[0])


def test_a_launch_is_recorded_and_alive(launch: Launch, tmp_path: Path) -> None:
    """The engine leads a session of its own, is in the ledger, gets its environment, and has no exit code yet."""
    engine = launch(f"import os; print(os.environ['MARK'], os.getppid()); {SLEEP}", env={"MARK": "here"})
    assert engine.pids() == [engine.owned.pid]
    assert os.getsid(engine.owned.pid) == engine.owned.pid
    assert (tmp_path / "running.json").exists()
    assert engine.exit_code is None
    assert engine.log_text.split() == ["here", str(os.getpid()), "up"]


def test_an_obedient_engine(launch: Launch, tmp_path: Path) -> None:
    """SIGTERM is enough: nobody is killed, nothing is left, the ledger is empty, and a second stop changes nothing."""
    engine = launch(SLEEP)
    proof = engine.stop()
    assert proof == StopProof(exit_code=-15, killed=0, left=0, port_free=True)
    assert proof.clean
    assert not psutil.pid_exists(engine.owned.pid)
    assert not (tmp_path / "running.json").exists()
    assert engine.stop() == proof


def test_all_of_the_session_ends(launch: Launch) -> None:
    """A child that knows nothing of SIGTERM to its parent ends too."""
    engine = launch(with_child(SLEEP, SLEEP))
    child = child_of(engine)
    assert sorted(engine.pids()) == sorted([engine.owned.pid, child])
    proof = engine.stop(term_s=0.1)
    assert (proof.killed, proof.left) == (1, 0)
    assert not psutil.pid_exists(child)


def test_an_engine_that_ignores_sigterm(launch: Launch) -> None:
    """It is killed after its time, and counted once however long it takes to die."""
    proof = launch(DEAF).stop(term_s=0.1)
    assert proof == StopProof(exit_code=-9, killed=1, left=0, port_free=True)


def test_an_engine_that_serves_follows_sigint(launch: Launch) -> None:
    """Where its kind looks for SIGTERM only now and then; else this test would take ten minutes."""
    proof = launch(f"{HEEDS_NO_SIGTERM}; {LISTEN}", stop_signals=SIGINTS).stop(term_s=600)
    assert proof == StopProof(exit_code=-2, killed=0, left=0, port_free=True)


def test_the_second_sigint_ends_one_that_still_waits(launch: Launch) -> None:
    """The first was heard and answered by waiting for a request."""
    waits = "signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.SIG_DFL))"
    proof = launch(f"{HEEDS_NO_SIGTERM}; {waits}; {LISTEN}", stop_signals=SIGINTS).stop(term_s=600)
    assert proof == StopProof(exit_code=-2, killed=0, left=0, port_free=True)


def test_an_engine_that_does_not_serve_yet_follows_sigterm(launch: Launch) -> None:
    """SIGINT would have to wait until an import has ended."""
    code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SLEEP}"
    proof = launch(code, stop_signals=SIGINTS).stop(term_s=600)
    assert proof == StopProof(exit_code=-15, killed=0, left=0, port_free=True)


def test_a_leader_that_only_unloads_is_not_waited_for(launch: Launch) -> None:
    """Its child has ended at its word: it is ended without being counted as one that did not obey."""
    code = (
        "import signal, subprocess, sys, time; "
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], stdout=subprocess.DEVNULL); "
        "signal.signal(signal.SIGTERM, lambda *_: (child.kill(), child.wait())); "
        "print('up', flush=True); [time.sleep(600) for _ in range(9)]"
    )
    proof = launch(code).stop(term_s=600)
    assert proof == StopProof(exit_code=-9, killed=0, left=0, port_free=True)


def test_in_a_hurry_nobody_is_waited_for(launch: Launch) -> None:
    """A second Ctrl-C during the wait ends it; else this test would take ten minutes."""
    asked = iter([False, False, True])
    proof = launch(DEAF).stop(term_s=600, must_hurry=lambda: next(asked))
    assert (proof.killed, proof.left) == (1, 0)


def test_a_grandchild_that_outlives_its_leader(launch: Launch) -> None:
    """It is found by its session, killed, and collected: not even a zombie is left."""
    engine = launch(with_child(DEAF, "pass"))
    wait_for(lambda: engine.exit_code is not None, "end of the leader")
    child = child_of(engine)
    assert engine.pids() == [child]
    proof = engine.stop()
    assert proof == StopProof(exit_code=0, killed=1, left=0, port_free=True)
    assert not psutil.pid_exists(child)


def test_other_children_keep_their_exit_code(launch: Launch) -> None:
    """Only the engine's own zombies are collected: the load process's code belongs to whoever waits for it."""
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as other:
        wait_for(lambda: not alive(other.pid), "end of the other child")
        launch(with_child(SLEEP, SLEEP)).stop(term_s=0)
        assert other.wait() == 3


def test_what_cannot_be_ended_stays_in_the_ledger(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that the kernel does not let go is told, and the next run finds it in the ledger."""
    engine = launch(SLEEP)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "end", lambda *_, **__: 1)
        proof = engine.stop()
    assert (proof.left, proof.exit_code, proof.clean) == (1, None, False)
    assert (tmp_path / "running.json").exists()


def test_a_port_that_stays_taken_is_told(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign holder of the port is reported, not touched."""
    monkeypatch.setattr(process, "wait_port_free", lambda port, limit_s: wait_port_free(port, limit_s=0.1))
    with socket.create_server(("127.0.0.1", 0)) as holder:
        proof = launch(SLEEP, port=holder.getsockname()[1]).stop()
    assert (proof.left, proof.port_free, proof.clean) == (0, False, False)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """Nothing is launched, and the message names the program."""
    with pytest.raises(EngineMissing, match="nowhere/python: no such program"):
        EngineProcess.launch(["nowhere/python"], env={}, port=1, log_path=tmp_path / "log", book=Ledger(tmp_path / "l"))
    assert list(tmp_path.iterdir()) == []


def test_a_launch_that_cannot_be_recorded_is_taken_back(tmp_path: Path) -> None:
    """No engine runs that a later run could not find."""
    started: list[Owned] = []

    class FullDisk(Ledger):
        def record(self, owned: Owned) -> None:
            started.append(owned)
            raise StoreError("no space left")

    with pytest.raises(StoreError, match="no space left"):
        EngineProcess.launch(
            [sys.executable, "-c", SLEEP], env={}, port=1, log_path=tmp_path / "log", book=FullDisk(tmp_path / "l")
        )
    assert not psutil.pid_exists(started[0].pid)
    assert not Ledger(tmp_path / "l").scratch.exists()


def test_temporary_files_go_with_the_engine(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in a folder of its own; what it compiles is found again by the next, or is where the user says."""
    say = "import os, tempfile; print(tempfile.mkstemp()[1], os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    engine = launch(f"{say}; {SLEEP}")
    left, kernels = engine.log_text.split()[:2]
    assert Path(left).parent == Ledger(tmp_path / "running.json").scratch
    assert not Path(kernels).is_relative_to(Path(left).parent)
    assert Path(left).exists()
    engine.stop()
    assert not Path(left).parent.exists()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    assert launch(f"{say}; {SLEEP}").log_text.split()[1] == "/mine"


def test_the_engine_s_environment_is_not_the_guard_s(launch: Launch, tmp_path: Path) -> None:
    """A module that the engine's PYTHONPATH adds runs in the engine alone."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('customised')")
    engine = launch(SLEEP, env={"PYTHONPATH": str(tmp_path / "site")})
    assert engine.log_text.split() == ["customised", "up"]


def test_listening_is_the_engine_s_own(launch: Launch) -> None:
    """An engine listens when a process of its session has its port, not when somebody else has, or it has another."""
    assert launch(LISTEN).listens()
    assert not launch(LISTEN.replace("int(sys.argv[1])", "0")).listens()
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        engine = launch(SLEEP, port=foreign.getsockname()[1])
        assert not engine.listens()
    engine.stop()
    assert not engine.listens()


def test_pinning_reaches_every_thread(launch: Launch) -> None:
    """All threads of all processes are kept on the given cores; without cores nothing is changed."""
    engine = launch(f"import threading, time; threading.Thread(target=time.sleep, args=[600]).start(); {SLEEP}")
    before = os.sched_getaffinity(0)
    threads = [thread.id for thread in psutil.Process(engine.owned.pid).threads()]
    engine.pin(())
    assert [os.sched_getaffinity(thread) for thread in threads] == [before, before]
    core = min(before)
    engine.pin((core,))
    assert [os.sched_getaffinity(thread) for thread in threads] == [{core}, {core}]


def test_free_ports_are_low_enough_for_sglang() -> None:
    """A port and the one 10,000 above it can be bound, both are ports, and clients do not get the first."""
    for port in {free_port() for _ in range(20)}:
        assert 20_000 <= port < 32_768
        assert port + 10_000 <= 65_535
        assert port_is_free(port)
        assert port_is_free(port + 10_000)


def test_a_port_whose_derived_one_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang would refuse it only after the weights are loaded."""
    port = free_port()
    monkeypatch.setattr(process, "PORTS", range(port, port + 1))
    assert free_port() == port
    for taken in (port, port + 10_000):
        with socket.create_server(("127.0.0.1", taken)):
            with pytest.raises(EngineMissing, match=f"no port of {port}-{port} can be bound"):
                free_port()
            assert not port_is_free(taken)
            assert not wait_port_free(taken, limit_s=0)
    assert wait_port_free(port, limit_s=0)
