"""A small search on the real CPU engine, scraped by a real Prometheus, beside what the CPU cannot show."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.queries import PanelQuery
from tests.support import cli
from tests.support.cpu_engine import free_port
from tests.support.exports import elsewhere
from tests.support.prometheus import Prometheus, Series, running

STUDY = "cpu"
SEARCH = (
    *("search", "--engine", "cpu", "--scenario", "cpu-smoke", "--sessions", "4", "--study", STUDY),
    *("--page-size", "16", "--hicache", "on", "--confirm-rounds", "0", "--json"),
)
SEARCH_LIMIT_S = 400.0
FROM_SEARCH: Mapping[str, str] = {
    "study": STUDY,
    "study_a": STUDY,
    "study_b": "h200",
    "instance": STUDY,
    "job_name": "job",
    "__rate_interval": "20s",
    "__range": "10m",
}
"""The variables of every dashboard: the search, compared with a study that was recorded on an H200."""


@dataclass(frozen=True)
class Monitored:
    """What Prometheus has seen of a search that has ended."""

    prometheus: Prometheus
    start_s: float
    end_s: float
    targets: list[dict[str, Any]]
    """What was scraped while a trial ran."""
    metrics_file: Path
    """What the search left for node_exporter."""

    def data(self, query: PanelQuery, **variables: str) -> list[Series]:
        """Return what a panel shows of the time of the search."""
        expr = query.filled({**FROM_SEARCH, **variables})
        found = self.prometheus.over(expr, self.start_s, self.end_s)
        return [series for series in found if not all(math.isnan(value) for _, value in series.values)]


@contextlib.contextmanager
def searched(folder: Path, *, trials: int = 2) -> Iterator[Monitored]:
    """Search the baselines, and more, while Prometheus scrapes; it answers as long as the block runs."""
    port = free_port()
    with (
        elsewhere() as targets,
        running(folder, exporter=f"127.0.0.1:{port}", targets=targets) as prometheus,
    ):
        start_s = time.time()
        run = cli.start([*SEARCH, "--trials", str(trials), "--metrics-port", str(port)], folder)
        seen: list[dict[str, Any]] = []

        def engine_is_scraped() -> bool:
            seen[:] = prometheus.targets()
            return any(t["labels"]["job"] == "hicache-tune-engine" and t["health"] == "up" for t in seen)

        run.wait_for(engine_is_scraped, limit_s=SEARCH_LIMIT_S)
        assert run.wait(limit_s=SEARCH_LIMIT_S) == 0, run.said()
        yield Monitored(prometheus, start_s, time.time(), seen, folder / "results" / STUDY / "metrics.prom")


def boards() -> dict[str, dict[str, Any]]:
    """Read every committed dashboard, by its name without the prefix."""
    from dashboards.files import dashboard_files

    read = [json.loads(path.read_text(encoding="utf-8")) for path in dashboard_files()]
    return {board["uid"].removeprefix("hicache-tune-"): board for board in read}
