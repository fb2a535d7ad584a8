"""What a nightly job leaves for Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.telemetry.nightly_exporter import CAUSES, OUTCOMES, Measured, Night, NightlyExporter
from tests.support.exports import NIGHT

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def written(night: Night, folder: Path) -> Samples:
    """Write the textfile of a night and read its samples, without the job's name."""
    NightlyExporter("j", night).write_textfile(folder / "nightly.prom")
    families = text_string_to_metric_families((folder / "nightly.prom").read_text())
    found: Samples = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = dict(sample.labels)
        assert labels.pop("job_name") == "j"
        found[sample.name, frozenset(labels.items())] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Name one sample."""
    return f"hicache_tune_nightly_{name}", frozenset(labels.items())


def test_a_night_shows_what_it_found(tmp_path: Path) -> None:
    """P99 and interval of winner, baseline and production, the change, the outcome and its cause."""
    samples = written(NIGHT, tmp_path)
    expected = {
        key("ttft_p99_seconds", role="winner"): 0.52,
        key("ttft_p99_low_seconds", role="production"): 0.62,
        key("ttft_p99_high_seconds", role="baseline"): 3.2,
        key("cached_ratio", role="winner"): 0.71,
        key("headroom_bytes", role="baseline", kind="device"): 11 * 2**30,
        key("setting_info", role="winner", setting="write_through, ratio 3"): 1,
        key("change_ratio"): 0.21,
        key("last_run_timestamp_seconds"): 1_795_000_000,
        key("duration_seconds"): 5400,
        key("environment_info", **NIGHT.environment): 1,
    }
    assert expected.items() <= samples.items()


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_exactly_one_outcome_is_true(tmp_path: Path, outcome: str) -> None:
    """The others are there and false, so that an alert can count on them."""
    samples = written(Night(outcome, 0, 0, {}), tmp_path)
    states = {each: samples[key("outcome_state", outcome=each)] for each in OUTCOMES}
    assert states == {each: float(each == outcome) for each in OUTCOMES}
    assert all(samples[key("cause_state", cause=cause)] == 0 for cause in CAUSES)


def test_what_is_unknown_has_no_series(tmp_path: Path) -> None:
    """A night that measured nothing shows no P99 of zero and no change of zero."""
    names = {name.removeprefix("hicache_tune_nightly_") for name, _ in written(Night("no data", 0, 0, {}), tmp_path)}
    assert names == {
        "outcome_state",
        "cause_state",
        "last_run_timestamp_seconds",
        "duration_seconds",
        "environment_info",
    }
    measured = written(Night("good", 0, 0, {}, winner=Measured("off", 0.5)), tmp_path)
    assert {name.removeprefix("hicache_tune_nightly_") for name, _ in measured} - names == {
        "ttft_p99_seconds",
        "setting_info",
    }
