"""Stands in for the Docker client in tests: its containers are processes in sessions of their own.

`python fake_docker.py run|stop|inspect|rm|image ...`. Containers are folders in FAKE_DOCKER_HOME. In place of the
image's engine it runs `tests/support/fake_engine.py`, with the words of FAKE_ENGINE_WORDS. A container that is asked on
its stdin prints the file FAKE_DOCKER_FLAGS, and every image has the id FAKE_DOCKER_IMAGE. Standard library only, as it
runs alone. Like the real client, `run` hands SIGTERM on to the container, and its death leaves the container alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ["FAKE_DOCKER_HOME"])
ENGINE = Path(__file__).with_name("fake_engine.py")
STARTED = "import sys, os, subprocess; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"


def run(words: list[str]) -> int:
    """Start a container in the foreground; return its exit code."""
    if os.environ.get("FAKE_DOCKER_REFUSES"):
        sys.stderr.write("docker: Error response from daemon: No such image\n")
        return 125
    if "--interactive" in words:
        sys.stdin.read()
        sys.stdout.write(Path(os.environ["FAKE_DOCKER_FLAGS"]).read_text())
        return 0
    container = os.urandom(6).hex()
    folder = HOME / container
    folder.mkdir(parents=True)
    (folder / "argv.json").write_text(json.dumps(words))
    port = words[words.index("--port") + 1]
    command = [sys.executable, str(ENGINE), "--port", port, *json.loads(os.environ["FAKE_ENGINE_WORDS"])]
    engine = subprocess.Popen([sys.executable, "-c", STARTED, *command])
    (folder / "pid").write_text(str(engine.pid))
    Path(words[words.index("--cidfile") + 1]).write_text(container)
    signal.signal(signal.SIGTERM, lambda *_: engine.send_signal(signal.SIGTERM))
    code = engine.wait()
    end(container)
    return 128 - code if code < 0 else code


def end(container: str) -> None:
    """End every process of a container, as the kernel does with its pid namespace, and forget it (`--rm`)."""
    pid_file = HOME / container / "pid"
    if not pid_file.exists():
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(pid_file.read_text()), signal.SIGKILL)
    pid_file.unlink(missing_ok=True)


def main() -> int:
    """Answer one command."""
    command, *words = sys.argv[1:]
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "commands").open("a") as commands:
        commands.write(f"{command}\n")
    if command == "run":
        return run(words)
    if command == "image":
        sys.stdout.write(os.environ.get("FAKE_DOCKER_IMAGE", ""))
        return 0 if "FAKE_DOCKER_IMAGE" in os.environ else 1
    container = words[-1]
    pid_file = HOME / container / "pid"
    if not pid_file.exists():
        sys.stderr.write(f"Error: No such container: {container}\n")
        return 1
    if command == "inspect":
        sys.stdout.write(pid_file.read_text() if "Pid" in words[1] else "true")
    elif command == "stop":
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        deadline = time.monotonic() + float(words[1])
        while pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        end(container)
    elif command == "rm":
        end(container)
    return 0


if __name__ == "__main__":
    sys.exit(main())
