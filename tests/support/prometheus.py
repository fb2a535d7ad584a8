"""A real Prometheus with our own configuration, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from dashboards.files import PROMETHEUS_FOLDER
from tests.support.cpu_engine import free_port

SHIPPED_EXPORTER = "127.0.0.1:9877"
READY_LIMIT_S = 60.0
MISSING = "this test needs Prometheus and promtool: apt-get install --no-install-recommends prometheus"


def program(name: str) -> str:
    """Find `prometheus` or `promtool`."""
    found = shutil.which(name)
    assert found, MISSING
    return found


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and its values by time, in seconds since the epoch."""

    labels: Mapping[str, str]
    values: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that answers on loopback."""

    client: httpx.Client

    def over(self, expr: str, start_s: float, end_s: float, step_s: float = 1.0) -> list[Series]:
        """Evaluate `expr` at every step, as a panel does."""
        found = self._get("query_range", query=expr, start=str(start_s), end=str(end_s), step=str(step_s))
        return [
            Series(each["metric"], [(float(t), float(value)) for t, value in each["values"]])
            for each in found["result"]
        ]

    def targets(self) -> list[dict[str, Any]]:
        """List what is scraped now."""
        found: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """List the rules with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:
        response = self.client.get(f"/api/v1/{path}", params=parameters)
        answer = response.json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]


@contextlib.contextmanager
def running(folder: Path, *, exporter: str, targets: Mapping[str, Sequence[str]]) -> Iterator[Prometheus]:
    """Run Prometheus as it is shipped, but for the exporter's address, a quicker scrape, and `targets` by file."""
    config = folder / "prometheus"
    shutil.copytree(PROMETHEUS_FOLDER, config)
    shipped = (config / "prometheus.yml").read_text(encoding="utf-8")
    assert SHIPPED_EXPORTER in shipped
    text = shipped.replace(SHIPPED_EXPORTER, exporter).replace(": 5s", ": 1s").replace(": 15s", ": 1s")
    (config / "prometheus.yml").write_text(text, encoding="utf-8")
    for name, addresses in targets.items():
        listed = [{"targets": list(addresses)}] if addresses else []
        (config / "targets" / f"{name}.yml").write_text(yaml.safe_dump(listed), encoding="utf-8")
    port = free_port()
    argv = [
        program("prometheus"),
        f"--config.file={config / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client,
    ):
        try:
            _wait_ready(client, process, folder / "prometheus.log")
            yield Prometheus(client)
        finally:
            process.terminate()


def _wait_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if client.get("/-/ready").is_success:
                return
        time.sleep(0.1)
    raise AssertionError(f"Prometheus is not ready:\n{log.read_text(errors='replace')[-3000:]}")
