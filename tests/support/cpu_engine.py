"""Launch the CPU engine for a test, ask it, and stop it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from harness.engine.cpu.engine import CpuEngine

READY_LIMIT_S = 180.0


class NotReadyError(Exception):
    """Raised when a launch ends, or takes too long, before the engine answers; the message ends with its log."""


@dataclass(frozen=True)
class Answer:
    """What `/generate` says of one prompt."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    device_tokens: int
    """Prompt tokens whose KV was still on the device."""
    host_tokens: int
    """Prompt tokens whose KV came back from the host pool."""


@dataclass(frozen=True)
class RunningEngine:
    """An engine that answers on loopback."""

    client: httpx.Client
    launch_s: float

    def generate(self, prompt: Sequence[int], *, new_tokens: int = 8) -> Answer:
        """Continue `prompt`, greedily."""
        sampling = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
        request = {"input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True}
        response = self.client.post("/generate", json=request).raise_for_status()
        about: dict[str, Any] = response.json()["meta_info"]
        cached = about.get("cached_tokens_details") or {}
        said = about["output_token_logprobs"]
        return Answer(
            tokens=tuple(token for _, token, *_ in said),
            logprobs=tuple(logprob for logprob, *_ in said),
            device_tokens=cached.get("device", 0),
            host_tokens=cached.get("host", 0),
        )

    def ttft_s(self, prompt: Sequence[int]) -> float:
        """Measure the seconds from sending `prompt` to the first event of its answer."""
        sampling = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
        request = {"input_ids": list(prompt), "sampling_params": sampling, "stream": True}
        sent = time.perf_counter()
        with self.client.stream("POST", "/generate", json=request) as response:
            next(line for line in response.raise_for_status().iter_lines() if line.startswith("data: {"))
            return time.perf_counter() - sent

    def kv_pool_tokens(self) -> int:
        """Return the size of the device's KV pool."""
        info: dict[str, Any] = self.client.get("/server_info").raise_for_status().json()
        return int(info["max_total_num_tokens"])


@contextlib.contextmanager
def launched(
    engine: CpuEngine, log_path: Path, *flags: str, env: Mapping[str, str] | None = None
) -> Iterator[RunningEngine]:
    """Run the engine with `flags` beside its own, in a session of its own, until the block ends."""
    port = free_port()
    argv = [str(engine.python), "-m", "sglang.launch_server", "--model-path", str(engine.model_path)]
    argv += [*engine.base_flags, *flags, "--host", "127.0.0.1", "--port", str(port)]
    started = time.monotonic()
    with (
        log_path.open("wb") as log,
        subprocess.Popen(
            argv,
            env={**os.environ, **engine.env(), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client,
    ):
        try:
            _wait_ready(client, process, log_path, started + READY_LIMIT_S)
            yield RunningEngine(client, time.monotonic() - started)
        finally:
            _stop(process)


def random_prompts(count: int, tokens: int, *, seed: int) -> list[list[int]]:
    """Make prompts that share no prefix with each other or with those of another seed."""
    rng = random.Random(seed)
    return [[rng.randrange(300, 2048) for _ in range(tokens)] for _ in range(count)]


def free_port() -> int:
    """Pick a port of loopback that is free now, low enough for SGLang, which also claims port + 10000."""
    while True:
        port = random.SystemRandom().randrange(20000, 30000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def _wait_ready(client: httpx.Client, process: subprocess.Popen[bytes], log_path: Path, deadline: float) -> None:
    probe = {"input_ids": [300], "sampling_params": {"max_new_tokens": 1}}
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if client.get("/health").is_success and client.post("/generate", json=probe).is_success:
                return
        time.sleep(0.2)
    ended = "is not ready in time" if process.poll() is None else f"ended with {process.returncode}"
    raise NotReadyError(f"the engine {ended}:\n{log_path.read_text(errors='replace')[-6000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    # Its children die with it (PR_SET_PDEATHSIG) and are in its group; SIGTERM would first drain for seconds.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
