"""What of a trial's record is exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine.process import StopProof
from harness.engine.setting import Setting
from harness.load.job import JOB_FILE, ApiName, LoadJob
from harness.load_conditions import LoadConditions, Sign
from harness.store import Hygiene, TrialRecord
from harness.telemetry import Headroom, Telemetry
from harness.telemetry.sample import Sample, frame
from tests.support.console import Run
from tests.support.exports import h200_study
from tests.support.simulated import SimulatedEngine
from tests.support.trials import GIB, failed, invalid, measured, not_sustainable
from tuning.cli.figures import baseline_of, engine_of, figures_of
from tuning.study import BASELINES

OFF, ON = BASELINES


def test_a_measured_trial() -> None:
    """TTFT by quantile, requests by how they ended, steps, and the least memory that was free."""
    figures = figures_of(measured(OFF, 1.0, number=3))
    assert figures.ttft_s == {0.5: 0.25, 0.9: 0.5, 0.95: pytest.approx(1 / 1.5), 0.99: 1.0}
    assert figures.requests == {"ok": 600, "failed": 0, "timed out": 0, "cut": 0, "not played": 0}
    assert figures.steps_s == {"load": 30.0}
    assert figures.headroom is not None
    assert figures.headroom.host_bytes == 9 * GIB
    assert (figures.number, figures.purpose, figures.outcome, figures.failure) == (3, "search", "measured", None)


def test_what_was_remarked_is_exported() -> None:
    """Every sign is there once the load was watched, so that an alert sees it come; before, none is."""
    assert figures_of(measured(OFF)).remarks == {}
    telemetry = Telemetry(
        frame([Sample(0, swapped_in_bytes=0), Sample(1, swapped_in_bytes=9)]), Headroom(None, None, None), 2, 0, None
    )
    left = Hygiene(memory_back=False, stop=StopProof(exit_code=-9, killed=0, left=1, port_free=True))
    found = figures_of(measured(OFF, conditions=LoadConditions.of(telemetry), hygiene=left)).remarks
    assert {name for name, seen in found.items() if seen} == {"swapped", "processes left", "device memory kept"}
    assert set(found) == {*Sign, "processes left", "device memory kept"}


def test_a_failed_trial_has_its_class_and_no_figures() -> None:
    """What was not measured is not there, and is never zero."""
    figures = figures_of(failed(ON))
    assert (figures.outcome, figures.failure) == ("failed", "gpu_oom")
    assert (figures.ttft_s, figures.cached_ratio, figures.requests) == ({}, {}, {})
    assert (figures.reload_tokens, figures.reload, figures.headroom) == (None, None, None)


@pytest.mark.parametrize("record", [not_sustainable(ON), invalid(ON)])
def test_a_p99_that_may_not_be_compared_is_not_shown(record: TrialRecord) -> None:
    """Nobody takes it for the baseline or the best (design rules 6 and 12)."""
    assert record.summary is not None
    assert record.summary.steady is not None
    assert figures_of(record).ttft_s == {}


@pytest.mark.parametrize(
    ("record", "baseline"),
    [
        (measured(OFF), "off"),
        (measured(ON), "on"),
        (measured(OFF, purpose="confirm"), None),
        (measured(Setting(hicache=True, page_size=64)), None),
    ],
)
def test_baselines_are_those_of_the_search(record: TrialRecord, baseline: str | None) -> None:
    """A confirmation plays other sessions, whose P99 is not compared with the search's."""
    assert baseline_of(record) == baseline


def test_what_reloads_cost_is_shown() -> None:
    """A study that was recorded on an H200: shares of tiers, and the cost of reloads with its interval."""
    shown = {
        (sample.labels["role"], sample.name.removeprefix("hicache_tune_trial_"), *sample.labels.values()): sample.value
        for family in h200_study().collect()
        for sample in family.samples
        if "role" in sample.labels
    }
    by_name = {(role, name, labels[-1]): value for (role, name, *labels), value in shown.items()}
    assert by_name["last", "reload_tokens", "last"] == 2_290_304
    assert by_name["off", "ttft_seconds", "0.99"] == pytest.approx(2.9748, abs=1e-4)
    assert by_name["last", "reload_break_even_tokens", "last"] == pytest.approx(1095, abs=1)
    low, estimate, high = (by_name["last", "compute_seconds_per_token", b] for b in ("low", "estimate", "high"))
    assert 0 < low < estimate < high
    assert by_name["last", "cached_ratio", "host"] > by_name["last", "cached_ratio", "storage"] == 0


def test_the_engine_is_where_the_load_plays(tmp_path: Path) -> None:
    """The job of the load says it; before there is one nothing is known."""
    assert engine_of(tmp_path, 3) is None
    folder = tmp_path / "trials" / "0003-search"
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
    assert engine_of(tmp_path, 3) == "http://127.0.0.1:4711"


def test_a_search_leaves_its_metrics(run: Run, engine: SimulatedEngine) -> None:
    """For node_exporter; a resume shows what was found before."""
    flags = ("search", "--engine", "cpu", "--study", "s", "--confirm-rounds", "0")
    assert run(*flags, "--trials", "3").code == 0
    path = Path("results/s/metrics.prom")
    assert 'hicache_tune_study_trials_done{study="s"} 3.0' in path.read_text(encoding="utf-8")
    run(*flags, "--trials", "3", "--resume")
    text = path.read_text(encoding="utf-8")
    assert 'hicache_tune_study_trials_done{study="s"} 3.0' in text
    assert 'hicache_tune_study_running{study="s"} 0.0' in text
    assert 'hicache_tune_trials_total{outcome="measured",purpose="search",study="s"} 3.0' in text
    for role in ("last", "best", "off", "on"):
        assert f'hicache_tune_trial_ttft_seconds{{quantile="0.99",role="{role}",study="s"}}' in text


def test_an_answer_is_not_lost_for_a_copy(run: Run, engine: SimulatedEngine) -> None:
    """Where the metrics cannot be written, the search says so and ends as it would have."""
    Path("results/s/metrics.prom").mkdir(parents=True)
    said = run("search", "--engine", "cpu", "--study", "s", "--confirm-rounds", "0", "--trials", "2", "--json")
    assert said.code == 0
    assert "metrics.prom: the metrics cannot be written" in said.err
    assert '"launch_command"' in said.out
