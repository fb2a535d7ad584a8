"""Other clients, each a process of its own on the client's core: two load generators, and candidate HTTP stacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.engine.cpu.engine import CpuEngine
from tests.bench.load.rung import LIMIT_S, ROOT, Client, Load, Seen
from tests.bench.load.words import prompt

HERE = Path(__file__).parent
REQUESTS_FILE = "requests.jsonl"
LAST_LINES = 5


def stack(module: str, name: str, python: Path) -> Client:
    """Return a client that plays through one stack of `greenlet_stacks` or `asyncio_stacks`."""

    def play(url: str, load: Load, folder: Path, cpus: Sequence[int]) -> list[Seen]:
        seen = folder / "seen.json"
        numbers = (load.streams, load.tokens, load.requests)
        argv = [str(python), "-m", f"tests.bench.load.{module}", name, url, *map(str, numbers), str(seen)]
        return _seen(argv, seen, folder, cpus, {"PYTHONPATH": str(ROOT)})

    return play


def bench_serving(engine: CpuEngine) -> Client:
    """Return `sglang.bench_serving`, the Python client, from the engine's environment."""

    def play(url: str, load: Load, folder: Path, cpus: Sequence[int]) -> list[Seen]:
        _write_requests(load, folder)
        seen = folder / "seen.json"
        flags = {
            "--backend": "sglang-oai-chat",
            "--base-url": url,
            "--dataset-name": "openai",
            "--dataset-path": str(folder / REQUESTS_FILE),
            "--num-prompts": str(load.requests),
            "--max-concurrency": str(load.streams),
            "--model": "m",
            "--tokenizer": str(engine.model_path),
            "--warmup-requests": "0",
            "--output-file": str(folder / "bench_serving.jsonl"),
        }
        argv = [str(engine.python), str(HERE / "sglang_client.py"), str(seen)]
        argv += [*(part for flag in flags.items() for part in flag), "--output-details", "--disable-tqdm"]
        return _seen(argv, seen, folder, cpus, engine.env())

    return play


def guidellm(python: Path) -> Client:
    """Return `guidellm` with one worker process: it has one core here."""

    def play(url: str, load: Load, folder: Path, cpus: Sequence[int]) -> list[Seen]:
        _write_requests(load, folder)
        report = folder / "guidellm.json"
        argv = [
            *(str(python), "-m", "guidellm", "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={url},model=m"),
            *("--profile", f"kind=concurrent,streams={load.streams}"),
            *("--constraint", f"kind=max_requests,count={load.requests}"),
            *("--data", f"kind=json_file,path={folder / REQUESTS_FILE}"),
            *("--output", f"kind=json,path={report}"),
        ]
        # It keeps wall time: what that was ahead of the monotonic clock is taken before and after.
        before_ns = time.time_ns() - time.monotonic_ns()
        _run(argv, folder, cpus, {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "HF_HUB_OFFLINE": "1"})
        ahead_ns = (before_ns + time.time_ns() - time.monotonic_ns()) // 2
        return _guidellm_seen(report, ahead_ns)

    return play


def _guidellm_seen(report: Path, ahead_ns: int) -> list[Seen]:
    benchmark = json.loads(report.read_text(encoding="utf-8"))["benchmarks"][0]
    seen = []
    for request in benchmark["requests"]["successful"]:
        times = request["info"]["timings"]
        sent_ns, first_ns = (round(times[at] * 1e9) - ahead_ns for at in ("request_start", "first_token_iteration"))
        seen.append(Seen(int(request["output"][8:14]), sent_ns, first_ns, times["token_iterations"]))
    return seen


def _write_requests(load: Load, folder: Path) -> None:
    lines = []
    for key in range(load.requests):
        words = prompt(key)
        chat = {"messages": [{"role": "user", "content": words}], "max_tokens": load.tokens}
        lines.append(json.dumps({**chat, "prompt": words, "output_tokens_count": load.tokens}) + "\n")
    (folder / REQUESTS_FILE).write_text("".join(lines), encoding="utf-8")


def _seen(argv: Sequence[str], out: Path, folder: Path, cpus: Sequence[int], env: Mapping[str, str]) -> list[Seen]:
    _run(argv, folder, cpus, env)
    return [Seen(*row) for row in json.loads(out.read_text(encoding="utf-8"))]


def _run(argv: Sequence[str], folder: Path, cpus: Sequence[int], env: Mapping[str, str]) -> None:
    """Run a client on `cpus`; a client that fails, or does not end, has seen nothing, and its log says why."""
    log = folder / "client.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            start_new_session=True,
        )
        os.sched_setaffinity(process.pid, cpus)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            code = process.wait()
    if code != 0:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise RuntimeError(f"{argv[0]} ended with code {code}: " + "\n".join(last))


def python_here() -> Path:
    """Return our own interpreter, which has gevent, Locust and httpx."""
    return Path(sys.executable)


def versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of packages in the environment of `python`."""
    script = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    answer = subprocess.run([str(python), "-c", script, *packages], capture_output=True, text=True, check=True)
    return dict(zip(packages, answer.stdout.split(), strict=True))
