"""Readiness: alive, up by its log, listening, healthy and generating, all of them; in a world whose clock we turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.engine import readiness
from harness.engine.client import EngineClient
from harness.engine.failure import FailureKind, LaunchFailed
from harness.engine.process import EngineProcess
from harness.engine.readiness import LaunchPhase, phase_of, wait_ready
from harness.engine.spec import ReadyLimits
from harness.errors import Interrupted

FIRED_UP = "The server is fired up and ready to roll!"
LAUNCH = (
    (1.0, "Load weight begin. avail mem=139.13 GB"),
    (2.0, "Load weight end. elapsed=0.12 s"),
    (3.0, "Capture target decode CUDA graph begin. backend=full"),
    (5.0, "Allocating 60.00 GB host memory for hierarchical KV cache."),
    (9.0, "INFO:     Uvicorn running on http://127.0.0.1:30001"),
    (10.0, FIRED_UP),
)
NEVER = float("inf")


@dataclass
class World:
    """An engine whose life is a schedule in seconds. It stands for the clock of `harness.engine.readiness` too."""

    log: tuple[tuple[float, str], ...] = LAUNCH
    dies_s: float = NEVER
    exit_code: int = -9
    listens_s: float = 9.0
    healthy_s: float = 9.0
    generates_s: float = 9.0
    now_s: float = 0.0
    phases: list[tuple[LaunchPhase, float]] = field(default_factory=list)

    def monotonic(self) -> float:
        """Tell the time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let the time pass, but never for ever."""
        self.now_s += seconds
        assert self.now_s < 3600

    def enter(self, phase: LaunchPhase) -> None:
        """Note when a phase was told."""
        self.phases.append((phase, round(self.now_s)))

    def wait(self, limits: ReadyLimits | None = None, *, stop_s: float = NEVER) -> dict[str, float]:
        """Wait until ready; the user asks to stop at `stop_s`."""
        return wait_ready(
            Engine(self),
            Client(self),
            limits or ReadyLimits(),
            on_phase=self.enter,
            should_stop=lambda: self.now_s >= stop_s,
        )


class Engine(EngineProcess):
    """The engine of a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def exit_code(self) -> int | None:
        """The exit code once it has died."""
        return self.world.exit_code if self.world.now_s >= self.world.dies_s else None

    @property
    def log_text(self) -> str:
        """What it has printed so far."""
        return "".join(f"{line}\n" for at_s, line in self.world.log if self.world.now_s >= at_s)

    def listens(self) -> bool:
        """Whether it has its port."""
        return self.world.now_s >= self.world.listens_s


class Client(EngineClient):
    """Answers from whatever has the port."""

    def __init__(self, world: World) -> None:
        self.world = world

    def healthy(self) -> bool:
        """Whether /health is 200."""
        return self.world.now_s >= self.world.healthy_s

    def generates(self) -> bool:
        """Whether a token comes."""
        return self.world.now_s >= self.world.generates_s


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A launch that goes well, until a test changes it."""
    made = World()
    monkeypatch.setattr(readiness, "time", made)
    return made


def test_a_good_launch(world: World) -> None:
    """Each phase is told once, when it begins, and its seconds are returned; they add up to the launch."""
    spent = world.wait()
    assert world.phases == [
        (LaunchPhase.IMPORTS, 0),
        (LaunchPhase.WEIGHTS, 1),
        (LaunchPhase.KV_POOL, 2),
        (LaunchPhase.GRAPHS, 3),
        (LaunchPhase.HOST_POOL, 5),
        (LaunchPhase.WARM_UP, 9),
        (LaunchPhase.UP, 10),
    ]
    assert list(spent) == [phase.value for phase, _ in world.phases]
    assert {name: round(seconds) for name, seconds in spent.items()} == {
        **{"imports": 1, "weights": 1, "kv pool": 1, "graphs": 2, "host pool": 4, "warm-up": 1, "up": 0}
    }


@pytest.mark.parametrize("sign", ["listens_s", "healthy_s", "generates_s"])
def test_one_sign_alone_is_not_enough(world: World, sign: str) -> None:
    """The engine is ready only when the last of the signs is there."""
    setattr(world, sign, 20.0)
    world.wait()
    assert round(world.now_s) == 20


def test_a_healthy_port_is_not_enough(world: World) -> None:
    """Whoever answers before the ready line is not asked: it may be somebody else's server."""
    world.healthy_s = world.generates_s = world.listens_s = 0.0
    world.wait()
    assert round(world.now_s) == 10


def test_a_foreign_server_on_the_port_does_not_count(world: World) -> None:
    """SGLang prints its ready line before it finds its port taken: the answers are not its own."""
    world.log = (*LAUNCH, (10.0, "ERROR: [Errno 98] error while attempting to bind: address already in use"))
    world.healthy_s = world.generates_s = 0.0
    world.listens_s = NEVER
    world.dies_s, world.exit_code = 12.0, 3
    with pytest.raises(LaunchFailed) as failed:
        world.wait()
    assert (failed.value.failure.kind, failed.value.failure.exit_code) == (FailureKind.PORT_IN_USE, 3)


def test_death_is_classed_at_once(world: World) -> None:
    """A dead engine is not waited for, and its log says why it died."""
    world.log = (*LAUNCH[:4], (6.0, "ValueError: Not enough host memory available. Requesting 400.00 GB"))
    world.dies_s = 6.0
    with pytest.raises(LaunchFailed) as failed:
        world.wait()
    assert failed.value.failure.kind is FailureKind.HOST_MEMORY_REFUSED
    assert failed.value.failure.last_lines[-1].startswith("ValueError: Not enough host memory")
    assert round(world.now_s) == 6


def test_a_phase_that_does_not_end(world: World) -> None:
    """The limit counts from the last progress, and the message names the phase."""
    world.log = LAUNCH[:4]
    with pytest.raises(LaunchFailed) as failed:
        world.wait(ReadyLimits(phase_s=7.0, total_s=100.0))
    assert round(world.now_s) == 12
    failure = failed.value.failure
    assert (failure.kind, failure.exit_code) == (FailureKind.SLOW_START, None)
    assert failure.said == "no progress beyond `host pool` after 12 s"
    assert failure.last_lines[-1] == LAUNCH[3][1]
    assert "--ready-timeout" in str(failed.value)


def test_a_launch_that_takes_too_long_in_all(world: World) -> None:
    """Progress in every phase does not help when the whole is too slow."""
    with pytest.raises(LaunchFailed, match="no progress beyond `host pool` after 8 s"):
        world.wait(ReadyLimits(phase_s=7.0, total_s=8.0))


def test_up_but_never_healthy(world: World) -> None:
    """An engine that says that it is up and does not answer is a slow start too."""
    world.healthy_s = NEVER
    with pytest.raises(LaunchFailed, match="no progress beyond `up`"):
        world.wait(ReadyLimits(phase_s=30.0))


def test_the_user_is_heard_at_once(world: World) -> None:
    """A request to stop ends the wait in any phase, before anything else is judged."""
    world.dies_s = 4.0
    with pytest.raises(Interrupted):
        world.wait(stop_s=4.0)
    assert round(world.now_s) == 4


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("", LaunchPhase.IMPORTS),
        ("Capture cuda graph begin. This can take up to several minutes.", LaunchPhase.GRAPHS),
        ("Allocating KV hierarchical KV host pool: 1046317 tokens, 60.00 GB host memory.", LaunchPhase.HOST_POOL),
        ("INFO:     Application startup complete.", LaunchPhase.WARM_UP),
        (f"{FIRED_UP}\nINFO:     Uvicorn running on http://127.0.0.1:1", LaunchPhase.UP),
    ],
)
def test_lines_of_other_versions_and_orders(line: str, phase: LaunchPhase) -> None:
    """The furthest phase counts, whichever line came last and however the version words it."""
    assert phase_of(line) is phase


def test_the_log_file_is_read_while_it_grows(tmp_path: Path) -> None:
    """A log that breaks off inside a character is read all the same."""
    engine = object.__new__(EngineProcess)
    engine.log_path = tmp_path / "engine.log"
    engine.log_path.write_bytes("Load weight begin — ".encode()[:-2])
    assert phase_of(engine.log_text) is LaunchPhase.WEIGHTS
