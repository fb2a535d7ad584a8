"""`hicache-tune dashboard`: the Grafana dashboards, and the Prometheus that feeds them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape

from scenarios.errors import ConfigError

app = App(name="dashboard", help="Export, check and start the Grafana dashboards and their Prometheus.")
DEFAULT_FOLDER = Path("hicache-tune-monitoring")
OK, FAULTS = 0, 1


@app.command
def export(
    *,
    to: Annotated[Path, Parameter(help="Folder to write; it must not exist yet, or be empty.")] = DEFAULT_FOLDER,
) -> int:
    """Write the dashboards, their provisioning, the Prometheus configuration and compose.yaml to a folder of yours."""
    console = Console(stderr=True, soft_wrap=True)
    _export(to)
    console.print(
        f"Written to {escape(str(to))}. Import grafana/json/*.json in Grafana, or start all of it: "
        f"hicache-tune dashboard up --folder {escape(shlex.quote(str(to)))}"
    )
    return OK


@app.command
def check(
    files: Annotated[tuple[Path, ...], Parameter(help="Dashboards as JSON; by default our own.")] = (),
) -> int:
    """Look for what breaks a dashboard once it is provisioned or imported, and for metrics that nobody has."""
    from dashboards.files import dashboard_files
    from dashboards.lint import lint, lint_for_readers

    console, found = Console(soft_wrap=True, highlight=False), False
    for path in files or dashboard_files():
        board = _read(path)
        faults = [*lint(board), *lint_for_readers(board)]
        found = found or bool(faults)
        for fault in faults:
            console.print(f"{escape(str(path))}: {escape(fault)}")
    if not found:
        Console(stderr=True).print(f"{len(files or dashboard_files())} dashboards, no fault found")
    return FAULTS if found else OK


@app.command
def up(
    *,
    folder: Annotated[Path, Parameter(help="Folder of an export; it is made when it is missing.")] = DEFAULT_FOLDER,
    results: Annotated[Path, Parameter(help="Where the searches' results are.")] = Path("results"),
    dry_run: Annotated[bool, Parameter(negative="", help="Only say what would be run.")] = False,
) -> int:
    """Start Prometheus and Grafana with Docker; without Docker, say exactly what to run."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    docker = _docker_with_compose()
    if docker is None:
        for line in _by_hand(folder, results):
            console.print(escape(line))
        return FAULTS
    argv = [docker, "compose", "--file", str(folder / "compose.yaml"), "up", "--detach"]
    variables = {"HICACHE_TUNE_RESULTS": str(results.absolute())}
    console.print(escape(" ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())), end=" ")
    console.print(escape(shlex.join(argv)))
    if dry_run:
        return OK
    if not (folder / "compose.yaml").exists():
        _export(folder)
    results.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run(argv, env={**os.environ, **variables}, check=False)
    if ended.returncode != 0:
        raise ConfigError(f"docker compose ended with {ended.returncode}; what it printed above says why")
    console.print("Grafana: http://127.0.0.1:3000 - then start a search with --metrics-port 9877")
    return OK


def _docker_with_compose() -> str | None:
    """Find Docker; Compose is a plugin of its own, which may be missing."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        return None
    return docker


def _export(folder: Path) -> None:
    from dashboards.files import EXPORTED, FOLDER

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already, and may hold changes of yours; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in EXPORTED:
            source, target = FOLDER / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)
    except OSError as problem:
        raise ConfigError(f"{folder}: cannot be written ({problem.strerror}); name another folder") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        board = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigError(f"{path}: no readable dashboard ({problem}); export it from Grafana as JSON") from None
    if not isinstance(board, dict) or not isinstance(board.get("panels"), list):
        raise ConfigError(f"{path}: no dashboard, it has no panels; export it from Grafana as JSON")
    return board


def _by_hand(folder: Path, results: Path) -> Iterator[str]:
    """Say how to get the same without Docker."""
    at = folder.absolute()
    quoted = shlex.quote(str(at))
    yield "There is no `docker compose` here. Install it and run this again, or run Prometheus and Grafana yourself:"
    if not (folder / "compose.yaml").exists():
        yield f"  hicache-tune dashboard export --to {quoted}"
    yield (
        f"  prometheus --config.file={quoted}/prometheus/prometheus.yml --storage.tsdb.path={quoted}/tsdb "
        "--web.listen-address=127.0.0.1:9090"
    )
    yield (
        f"  HICACHE_TUNE_DASHBOARDS={quoted}/grafana/json HICACHE_TUNE_PROMETHEUS=http://127.0.0.1:9090 "
        f"GF_SERVER_HTTP_ADDR=127.0.0.1 GF_PATHS_PROVISIONING={quoted}/grafana/provisioning "
        "grafana server --homepath /usr/share/grafana"
    )
    textfiles = shlex.quote(f"--collector.textfile.directory={results.absolute()}/*")
    yield f"  node_exporter --web.listen-address=127.0.0.1:9100 {textfiles}  # nights, and searches that have ended"
    yield "Then start a search with --metrics-port 9877 and open http://127.0.0.1:3000"
