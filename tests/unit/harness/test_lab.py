"""What the trials of a study share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness import lab as lab_module
from harness.engine.client import EngineClient
from harness.engine.ledger import Owned
from harness.engine.spec import EngineSpec
from harness.lab import DEVICE_MEMORY_SLACK_BYTES, Lab
from harness.load.job import ApiName, Rival
from harness.telemetry import HostMemory, NvmlUnavailable, open_nvml
from scenarios.plan import read_plan
from tests.support.fake_nvml import FakeGpu, FakeNvml
from tests.support.loads import chat_session, plan_of

GIB = 2**30
PLAN = plan_of(chat_session("a"))


class Silent:
    """Shows nothing."""

    def step(self, *_: Any) -> None:
        """Show nothing."""

    step_done = launching = playing = step


def lab(root: Path, gpu: FakeGpu | None = None, *, must_hurry: Callable[[], bool] = lambda: False) -> Lab:
    """Make a lab in `root`, with one GPU or none."""
    device = open_nvml(None, module=FakeNvml([gpu])) if gpu else NvmlUnavailable("no GPU")
    return Lab(
        root=root,
        spec=EngineSpec(python=Path("p"), model="m", sglang_version="0.5.15"),
        watch=Silent(),
        should_stop=lambda: False,
        must_hurry=must_hurry,
        api=ApiName.CHAT,
        load_limit_s=30,
        warm_up_tokens=50,
        device=device,
    )


def test_the_plan_of_a_seed_is_written_once(tmp_path: Path) -> None:
    """All trials of a seed play one file; a trial's own results go to its own folder."""
    first = lab(tmp_path).load_job("http://127.0.0.1:1", PLAN, tmp_path / "0001")
    written = first.plan_path.stat()
    second = lab(tmp_path).load_job("http://127.0.0.1:2", PLAN, tmp_path / "0002")
    assert read_plan(first.plan_path) == PLAN
    assert second.plan_path == first.plan_path == tmp_path / "plans" / "seed-1.jsonl"
    assert second.plan_path.stat().st_ino == written.st_ino
    assert (first.out_dir, second.out_dir) == (tmp_path / "0001", tmp_path / "0002")
    assert (first.model, first.limit_s, first.absent_cache_means_zero) == ("m", 30, True)


def test_a_load_is_played_as_the_study_says(tmp_path: Path) -> None:
    """By one process and to its end, unless more or a service level are asked for."""
    bench = lab(tmp_path)
    plain = bench.load_job("http://127.0.0.1:1", PLAN, tmp_path)
    assert (plain.processes, plain.session_header, plain.slo_ttft_s, plain.stop_when_diverging) == (1, None, None, True)
    assert plain.rival is None
    bench.rival = Rival(trial=2, requests_path=tmp_path / "requests.parquet", p99_s=0.5)
    bench.load_processes, bench.session_header, bench.slo_ttft_s = 3, "X-SMG-Routing-Key", 2.0
    asked = bench.load_job("http://127.0.0.1:1", PLAN, tmp_path)
    assert (asked.processes, asked.session_header, asked.slo_ttft_s) == (3, "X-SMG-Routing-Key", 2.0)
    assert asked.rival == bench.rival


def test_a_plan_that_was_cut_off_does_not_pass_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in the middle of the write leaves no file that later trials would take for the plan."""

    def killed(_: object, path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lab_module, "write_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            lab(tmp_path).load_job("http://127.0.0.1:1", PLAN, tmp_path)
    job = lab(tmp_path).load_job("http://127.0.0.1:1", PLAN, tmp_path)
    assert read_plan(job.plan_path) == PLAN
    assert [path.name for path in job.plan_path.parent.iterdir()] == ["seed-1.jsonl"]


def test_a_client_is_closed_after_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client points at the engine and gives its connections back, whatever happens."""
    closed = []
    monkeypatch.setattr(EngineClient, "close", lambda self: closed.append(self.base_url))
    with pytest.raises(ZeroDivisionError), lab(tmp_path).client("http://127.0.0.1:31000"):
        raise ZeroDivisionError
    assert closed == ["http://127.0.0.1:31000"]


def test_the_ledger_lies_in_the_study(tmp_path: Path) -> None:
    """A resumed study looks where the killed one has written."""
    lab(tmp_path).ledger.record(Owned(1, 1.0, "b"))
    assert (tmp_path / "running.json").exists()


def test_host_room_is_read(tmp_path: Path) -> None:
    """Room is the host's memory as it is now, its control group respected, less what this engine keeps free."""
    bench = lab(tmp_path)
    bench.spec = replace(bench.spec, host_reserve_bytes=7)
    room, memory = bench.host_room(), HostMemory.read()
    assert room.reserve_bytes == 7
    assert room.total_bytes == memory.total_bytes
    assert 0 < room.available_bytes <= memory.total_bytes


def test_without_a_gpu_nothing_is_known_of_its_memory(tmp_path: Path) -> None:
    """Unknown stays unknown, and is not waited for."""
    assert lab(tmp_path).device_free_bytes() is None
    assert lab(tmp_path).wait_device_memory_back(None) is None
    assert lab(tmp_path).wait_device_memory_back(80 * GIB) is None


def test_memory_comes_back_within_some_slack(tmp_path: Path) -> None:
    """A little that a driver keeps does not count as a leak."""
    gpu = FakeGpu("GPU-a", total_bytes=80 * GIB, reserved_bytes=0)
    bench = lab(tmp_path, gpu)
    idle = bench.device_free_bytes()
    assert idle == 80 * GIB
    gpu.used_bytes = DEVICE_MEMORY_SLACK_BYTES
    assert bench.wait_device_memory_back(idle) is True


@dataclass
class Clock:
    """Stands for the module `time`; after five seconds the GPU has given memory back, down to `then_used_bytes`."""

    gpu: FakeGpu
    then_used_bytes: int
    now_s: float = 0.0

    def monotonic(self) -> float:
        """Tell the time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
        if self.now_s > 5.0:
            self.gpu.used_bytes = self.then_used_bytes


@pytest.mark.parametrize(("then_used_bytes", "is_back", "after_s"), [(0, True, 5), (30 * GIB, False, 30)])
def test_memory_that_comes_late_or_never(
    then_used_bytes: int, is_back: bool, after_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for up to the limit."""
    gpu = FakeGpu("GPU-a", used_bytes=60 * GIB, total_bytes=80 * GIB, reserved_bytes=0)
    clock = Clock(gpu, then_used_bytes)
    monkeypatch.setattr(lab_module, "time", clock)
    assert lab(tmp_path, gpu).wait_device_memory_back(80 * GIB) is is_back
    assert round(clock.now_s) == after_s


def test_a_gpu_that_is_lost_is_not_waited_for(tmp_path: Path) -> None:
    """No reading is no answer, and no leak."""
    gpu = FakeGpu("GPU-a", used_bytes=60 * GIB, total_bytes=80 * GIB)
    bench = lab(tmp_path, gpu)
    gpu.lost = True
    assert bench.wait_device_memory_back(80 * GIB) is None
