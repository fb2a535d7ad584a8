"""An engine in a container: `docker run` as an argv list, and its end by container id.

The Docker client runs in the foreground as a process of ours, so that the engine's output and exit code arrive, and
a harness that dies takes the container along: the client hands SIGTERM on to it.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from harness.engine.handle import LaunchContext, LaunchPlan
from harness.engine.launch import port_of
from harness.engine.ledger import Ledger
from harness.engine.process import EngineProcess, StopProof, wait_port_free
from harness.engine.setting import Setting
from harness.engine.spec import PUBLIC_PORT, EngineSpec
from harness.errors import EngineMissing

MODEL_FOLDER = "/model"
"""Where a local model is found inside the container."""
CONTAINER_FILE = "container.id"
LABEL = "hicache-tune.run"
ASK_S = 20.0
KILL_S = 60.0
"""The kernel unpins a killed engine's host pool, which takes tens of seconds for a large one."""


@dataclass(frozen=True)
class Image:
    """A Docker image that has SGLang, and what its containers are given."""

    name: str
    program: str = "docker"
    """The client: `docker`, or one that takes the same arguments."""
    python: str = "python3"
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that the container sees; empty gives it all."""
    with_gpus: bool = True
    shm_gb: int = 32
    """Shared memory, over which the ranks talk; Docker's own 64 MB breaks NCCL."""
    mounts: tuple[tuple[Path, str], ...] = ()
    """Further folders, read-only: here and inside, for instance the cache of the hub."""
    labels: dict[str, str] = field(default_factory=dict)


def docker_argv(
    image: Image, spec: EngineSpec, setting: Setting, port: int, *, name: str = "", id_file: Path | None = None
) -> list[str]:
    """Build the `docker run` command of `setting`: a list, never a shell string.

    With a `name` it is a container of ours, which is found again by its label and by the id in `id_file`. The port is
    published on loopback alone. Variables are named and not written out: their values come from the client's
    environment, so that no secret stands among the arguments.
    """
    local = Path(spec.model).expanduser()
    model = [(local.absolute(), MODEL_FOLDER)] if local.is_dir() else []
    inside = replace(
        spec,
        python=Path(image.python),
        model=MODEL_FOLDER if model else spec.model,
        host="0.0.0.0",  # noqa: S104
    )
    return [
        *(image.program, "run", "--rm", "--init"),
        *(("--name", name) if name else ()),
        *(("--cidfile", str(id_file)) if id_file else ()),
        *_pairs("--label", [f"{key}={value}" for key, value in sorted({LABEL: name, **image.labels}.items()) if value]),
        *gpu_flags(image),
        *("--shm-size", f"{image.shm_gb}g", "--ipc", "private"),
        # The host pool is pinned memory, which the default limit of locked memory refuses.
        *("--ulimit", "memlock=-1:-1", "--ulimit", "stack=67108864:67108864"),
        *(("--cpuset-cpus", ",".join(map(str, spec.engine_cpus))) if spec.engine_cpus else ()),
        *("--publish", f"{spec.host}:{port}:{port}"),
        *_pairs("--volume", [f"{here}:{there}:ro" for here, there in (*model, *image.mounts)]),
        *_pairs("--env", sorted(spec.env)),
        *("--entrypoint", image.python, image.name),
        *inside.argv(setting, port)[1:],
    ]


@dataclass(frozen=True)
class DockerLauncher:
    """Starts each setting in a container of its own. `folder` keeps the running container's id."""

    spec: EngineSpec
    image: Image
    folder: Path

    def command(self, setting: Setting) -> tuple[str, ...]:
        """Return the same `docker run` on SGLang's usual port, with nothing in it by which we find our own."""
        return tuple(docker_argv(self.image, self.spec, setting, PUBLIC_PORT))

    def plan(self, setting: Setting) -> LaunchPlan:
        """Plan the launch of `setting`, on a port that is free now; raise ConfigError when the given one is not."""
        port = port_of(self.spec)
        name = f"hicache-tune-{uuid.uuid4().hex[:12]}"
        argv = docker_argv(self.image, self.spec, setting, port, name=name, id_file=self._id_file)
        return LaunchPlan(
            argv=tuple(argv),
            command=self.command(setting),
            env=dict(self.spec.env),
            port=port,
            base_url=f"http://{self.spec.host}:{port}",
        )

    def launch(self, plan: LaunchPlan, context: LaunchContext) -> DockerEngine:
        """Start the container; raise EngineMissing when there is no Docker client."""
        if shutil.which(self.image.program) is None:
            raise EngineMissing(f"{self.image.program}: no such program; install Docker or use --engine local")
        self._id_file.unlink(missing_ok=True)  # Docker refuses to write over one
        client = EngineProcess.launch(
            plan.argv, env=plan.env, port=plan.port, log_path=context.log_path, book=context.book
        )
        return DockerEngine(client, self.image.program, self._id_file, self.spec.host)

    def end_orphans(self, book: Ledger) -> int:
        """End the client that `book` still names, and the container whose id an earlier run left."""
        found = book.end_orphans()
        container = Container(self.image.program, self._id_file)
        if container.id and container.is_running():
            container.remove()
            found += 1
        self._id_file.unlink(missing_ok=True)
        return found

    @property
    def _id_file(self) -> Path:
        return self.folder / CONTAINER_FILE


class Container:
    """One container, known by the id that Docker wrote for us; nothing else is ever touched."""

    def __init__(self, program: str, id_file: Path) -> None:
        self._program, self._id_file = program, id_file

    @property
    def id(self) -> str:
        """The id; empty until Docker has made the container."""
        try:
            return self._id_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def pid(self) -> int | None:
        """Return the pid of its first process on this machine; None when it does not run here."""
        said = self._ask("inspect", "--format", "{{.State.Pid}}")
        return int(said) if said.isdecimal() and int(said) > 0 else None

    def is_running(self) -> bool:
        """Whether it runs."""
        return self._ask("inspect", "--format", "{{.State.Running}}") == "true"

    def stop(self, term_s: float) -> None:
        """Let it end within `term_s` after SIGTERM, then kill it."""
        self._ask("stop", "--time", str(max(1, round(term_s))), limit_s=term_s + KILL_S)

    def remove(self) -> None:
        """Kill and remove it; harmless when it is gone."""
        self._ask("rm", "--force", limit_s=KILL_S)

    def _ask(self, *words: str, limit_s: float = ASK_S) -> str:
        """Run one command of the client on this container; empty when it failed or there is no container."""
        if not (container := self.id):
            return ""
        try:
            done = subprocess.run(
                [self._program, *words, container],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""


class DockerEngine:
    """An engine in a container, and the client that shows its output."""

    def __init__(self, client: EngineProcess, program: str, id_file: Path, host: str) -> None:
        self._client, self._container, self._host = client, Container(program, id_file), host
        self._first_pid: int | None = None

    @property
    def container_id(self) -> str:
        """The container's id; empty until Docker has made it."""
        return self._container.id

    @property
    def exit_code(self) -> int | None:
        """The engine's exit code, which the client hands on; None while it runs."""
        return self._client.exit_code

    @property
    def log_text(self) -> str:
        """All that the engine has printed so far."""
        return self._client.log_text

    def pids(self) -> list[int]:
        """List the container's living processes by their pids on this machine."""
        if self._first_pid is None:
            self._first_pid = self._container.pid()
        if self._first_pid is None:
            return []
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self._first_pid)
            return [first.pid, *(child.pid for child in first.children(recursive=True))]
        return []

    def listens(self) -> bool:
        """Whether the container runs and its port answers: Docker publishes a port only for one container."""
        try:
            with socket.create_connection((self._host, self._client.port), timeout=1.0):
                return self._container.is_running()
        except OSError:
            return False

    def pin(self, cpus: Sequence[int]) -> None:
        """Nothing to do: the container was made with its cores."""

    def stop(self, *, term_s: float = 30.0, must_hurry: Callable[[], bool] = lambda: False) -> StopProof:
        """Stop and remove the container, end the client, and say what was seen."""
        self._container.stop(1.0 if must_hurry() else term_s)
        self._container.remove()
        proof = self._client.stop(term_s=5.0, must_hurry=must_hurry)
        self._container.remove()  # a client that was still making it has left it made and not started
        left = int(self._gone_too_late())
        return replace(proof, left=proof.left + left, port_free=wait_port_free(self._client.port, limit_s=10.0))

    def _gone_too_late(self) -> bool:
        deadline = time.monotonic() + ASK_S
        while self._container.is_running():
            if time.monotonic() > deadline:
                return True
            time.sleep(0.2)
        return False


def gpu_flags(image: Image) -> list[str]:
    """Return the arguments that show the container its GPUs."""
    if not image.with_gpus:
        return []
    # The inner quotes are Docker's: without them its reader of comma lists takes the second UUID for a key.
    return ["--gpus", f'"device={",".join(image.gpus)}"' if image.gpus else "all"]


def _pairs(flag: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]
