"""What a running search tells Prometheus, step by step."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from harness.load.job import JOB_FILE, ApiName, LoadJob, LoadProgress
from harness.store import folder_of, write_trial
from harness.telemetry import Exporter
from tests.support.trials import measured, not_sustainable
from tuning.cli.watch import LOG_FILE, ConsoleWatch
from tuning.limit_finder import ProbeResult
from tuning.objective import read_metric
from tuning.study import BASELINES

PROGRESS = LoadProgress(done=3, of=20, failed=1, in_flight=2, ttft_p50_ms=250.0)


@pytest.fixture
def exporter() -> Exporter:
    """Return the exporter of one study."""
    return Exporter("s")


@pytest.fixture
def watch(tmp_path: Path, exporter: Exporter) -> Iterator[ConsoleWatch]:
    """Watch a study that has just begun."""
    with ConsoleWatch(Console(file=io.StringIO()), tmp_path, exporter, planned=3) as watching:
        yield watching


def shown(exporter: Exporter, name: str) -> dict[str, float]:
    """Return the samples of one metric by their labels."""
    return {
        " ".join(v for k, v in sample.labels.items() if k != "study"): sample.value
        for family in exporter.collect()
        for sample in family.samples
        if sample.name == f"hicache_tune_{name}"
    }


def test_the_engine_is_a_target_while_its_load_is_played(
    tmp_path: Path, exporter: Exporter, watch: ConsoleWatch
) -> None:
    """From the first request on, until it is stopped; its load is shown meanwhile."""
    folder = folder_of(tmp_path, 4, "search")
    folder.mkdir(parents=True)
    job = LoadJob(
        base_url="http://127.0.0.1:4711",
        api=ApiName.CHAT,
        model="m",
        plan_path=tmp_path / "plan.jsonl",
        out_dir=folder,
        limit_s=60,
    )
    (folder / JOB_FILE).write_text(job.model_dump_json(), encoding="utf-8")
    watch.trial_begins(4, "search", BASELINES[0], measured=1, eta_s=90)
    watch.step(4, "load")
    assert exporter.targets() == []
    watch.playing(4, PROGRESS)
    assert [each["targets"] for each in exporter.targets()] == [["127.0.0.1:4711"]]
    assert shown(exporter, "current_trial_requests") == {"done": 3, "planned": 20, "failed": 1, "in_flight": 2}
    assert shown(exporter, "current_trial_ttft_p50_seconds") == {"": 0.25}
    watch.step(4, "stop")
    assert exporter.targets() == []
    assert shown(exporter, "current_step_info") == {"stop": 1}


def test_a_trial_that_ends_is_shown_with_its_role(exporter: Exporter, watch: ConsoleWatch) -> None:
    """The first baseline is the last trial, the best so far, and the baseline without HiCache."""
    record = measured(BASELINES[0], 1.0)
    watch.trial_ends(record, feasible=True, best=record)
    p99 = {labels: value for labels, value in shown(exporter, "trial_ttft_seconds").items() if "0.99" in labels}
    assert p99 == {"last 0.99": 1.0, "best 0.99": 1.0, "off 0.99": 1.0}


def test_a_trial_is_shown_by_its_objective_first(tmp_path: Path, exporter: Exporter) -> None:
    """The TTFT P99 beside it, and the rate of a load that was not sustained in place of a latency."""
    console = Console(width=200, record=True, file=io.StringIO())
    with ConsoleWatch(console, tmp_path, exporter, planned=2, metric=read_metric("throughput.requests")) as watch:
        watch.trial_ends(measured(BASELINES[0], 1.0), feasible=True, best=None)
        watch.trial_ends(not_sustainable(BASELINES[1]), feasible=False, best=None)
    first, second = console.export_text().splitlines()
    assert first.startswith("  throughput 10.00 requests/s, TTFT P99 1.000 s, P50 0.250 s")
    assert second.startswith(
        "  not sustainable: time to first token only grew during the load; 10.00 requests/s answered"
    )
    lines = (tmp_path / LOG_FILE).read_text(encoding="utf-8").splitlines()
    logged = [json.loads(line) for line in lines]
    assert [(line["objective"], line["sustained_per_s"]) for line in logged] == [(10.0, None), (None, 10.0)]


def test_a_probe_of_a_limit_is_shown_too(tmp_path: Path, exporter: Exporter, watch: ConsoleWatch) -> None:
    """Its record says more than the probe's result."""
    record = measured(BASELINES[1], 0.5, number=2, purpose="limit", rate_per_s=3.0)
    folder = folder_of(tmp_path, 2, "limit")
    folder.mkdir(parents=True)
    write_trial(record, folder)
    probe = ProbeResult(
        trial=2,
        rate_per_s=3.0,
        seed=1,
        meets=True,
        why_not="",
        p50_s=0.1,
        p99_s=0.5,
        p99_low_s=None,
        p99_high_s=None,
        requests_per_s=9.0,
        output_tokens_per_s=90.0,
    )
    watch.probe_ends(probe, 30.0)
    assert shown(exporter, "trials_total") == {"limit measured": 1}
    assert shown(exporter, "trial_ttft_seconds")["last 0.99"] == 0.5
