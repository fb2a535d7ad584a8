"""Exporters for what a small search on CPU cannot show: GPUs, SGLang 0.5.23, a nightly job, a finished GPU study."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from harness.load.record import read_records
from harness.reload_cost import reload_cost
from harness.store import TrialRecord
from harness.telemetry import Exporter, Headroom
from harness.telemetry.exposition import Exposition
from harness.telemetry.nightly_exporter import Measured, Night, NightlyExporter
from harness.telemetry.trial_metrics import TrialFigures
from tests.support.cases import DATA
from tuning.cli.figures import baseline_of, conditions_of, figures_of
from tuning.config import StudyFile

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "h200-2026-11-30"
GIB = 2**30
NIGHT = Night(
    outcome="regression",
    ended_at_s=1_795_000_000,
    duration_s=5400,
    environment={
        "gpu": "NVIDIA H200",
        "driver": "580.95",
        "sglang_version": "0.5.23",
        "model": "m",
        "scenario": "coding-agent",
    },
    winner=Measured("write_through, ratio 3", 0.52, 0.49, 0.56, {"device": 9 * GIB, "host": 120 * GIB}, 0.71),
    baseline=Measured("HiCache off", 2.97, 2.8, 3.2, {"device": 11 * GIB}, 0.22),
    production=Measured("write_through, ratio 2", 0.66, 0.62, 0.71, {"device": 10 * GIB}, 0.64),
    change_ratio=0.21,
    cause="engine version",
)


class Recording(Exposition):
    """Shows a file of metrics; its counters grow with every scrape."""

    def __init__(self, path: Path) -> None:
        self._text, self._scrapes = path.read_text(encoding="utf-8"), 0
        super().__init__()

    def collect(self) -> Iterator[Metric]:
        """Yield what is in the file."""
        self._scrapes += 1
        for family in text_string_to_metric_families(self._text):
            if family.type in ("counter", "histogram"):
                family.samples = [s._replace(value=s.value * self._scrapes) for s in family.samples]
            yield family


def h200_study() -> Exporter:
    """Show the study that was recorded on an H200, as a search of it would have."""
    file = StudyFile.parse(json.loads((EVIDENCE / "study.json").read_text(encoding="utf-8")), where="study.json")
    exporter = Exporter("h200")
    exporter.study_started(planned_trials=6, about=conditions_of(file.search, file.environment))
    best: TrialRecord | None = None
    # Without the last one: the one before it is the last whose break-even length is sure.
    for path in sorted((EVIDENCE / "trials").glob("*-search.json"))[:-1]:
        record = _with_reload_cost(path)
        best = record if best is None or record.p99_s < best.p99_s else best
        exporter.trial_finished(figures_of(record), best=figures_of(best), baseline=baseline_of(record))
    exporter.study_ended()
    return exporter


def _with_reload_cost(path: Path) -> TrialRecord:
    """Read a record of before the cost of reloads was kept in it, and add it from the requests."""
    record = TrialRecord.parse(json.loads(path.read_text(encoding="utf-8")), where=path.name)
    assert record.cache is not None
    requests = read_records(EVIDENCE / "requests" / f"{path.stem}.parquet")
    return record.model_copy(update={"reload": reload_cost(requests, record.cache, kv_bytes_per_token=None)})


def study_of_0_5_23() -> Exporter:
    """Show a study with what only 0.5.23 counts, and with a trial that failed; its values are made up."""
    exporter = Exporter("v23")
    exporter.study_started(planned_trials=1)
    exporter.trial_finished(
        TrialFigures(
            *(0, "host pool of 900 GB", "search", "failed"),
            failure="host_memory",
            backup_tokens=52_000,
            headroom=Headroom(3 * GIB, 60 * GIB, None, device_double_bytes=GIB, host_double_bytes=40 * GIB),
        )
    )
    return exporter


@contextlib.contextmanager
def elsewhere() -> Iterator[dict[str, list[str]]]:
    """Serve all of them, and yield their addresses by the target file that Prometheus reads them from."""
    by_file: dict[str, list[Exposition]] = {
        "dcgm": [Recording(DATA / "dashboards" / "dcgm.prom")],
        "sglang": [Recording(DATA / "dashboards" / "sglang-0.5.23.prom")],
        # node_exporter's textfile collector would show the last three.
        "node": [
            Recording(DATA / "dashboards" / "node.prom"),
            NightlyExporter("job", replace(NIGHT, ended_at_s=time.time() - 6 * 3600)),
            h200_study(),
            study_of_0_5_23(),
        ],
    }
    with contextlib.ExitStack() as serving:
        yield {
            name: [f"127.0.0.1:{serving.enter_context(each).start(0)}" for each in exporters]
            for name, exporters in by_file.items()
        }
