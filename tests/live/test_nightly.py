"""A nightly job on the real engine: a first night, a second that is compared with it, a third on a slower engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support import cli

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

JOB = """
job = "smoke"
production = "--enable-hierarchical-cache --hicache-ratio 2 --page-size 16"
threshold = 1.0      # other work on two cores makes a P99 of 16 requests half as long again
rounds = 1
baseline = false

[search]
engine = "cpu"
scenario = "cpu-smoke"
sessions = 4
concurrency = 4
"""
SLOWER = {"HICACHE_TUNE_CPU_PREFILL_FACTOR": "4"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder that the job runs in."""
    folder = tmp_path_factory.mktemp("nightly")
    (folder / "nightly.toml").write_text(JOB, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def nights(folder: Path) -> list[dict[str, Any]]:
    """Run three nights, the third with an injected slow-down, and return what each printed."""
    return [_night(folder, {}), _night(folder, {}), _night(folder, SLOWER)]


def _night(folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as changed:
        for name, value in variables.items():
            changed.setenv(name, value)
        run = cli.start(["nightly", "--json"], folder)
    code = run.wait(limit_s=500)
    run.wait_nothing_left(limit_s=0.5)
    night: dict[str, Any] = cli.printed_json(folder)
    assert code == night["exit_code"], run.said()
    return night


def test_the_second_night_is_compared_with_the_first(nights: list[dict[str, Any]]) -> None:
    """The same sessions were played, so that there is a change with an interval, and no regression."""
    first, second, _ = nights
    assert [(night["night"]["outcome"], night["exit_code"]) for night in (first, second)] == [("good", 0)] * 2
    assert first["night"]["change_ratio"] is None
    assert second["night"]["change_ratio"] is not None
    assert "against the good night of" in second["sentence"]


def test_a_slow_down_is_a_regression_whose_cause_is_named(nights: list[dict[str, Any]]) -> None:
    """Neither engine version, driver nor workload is blamed: a variable of the engine changed, which is unrecorded."""
    third = nights[2]
    assert (third["exit_code"], third["night"]["outcome"], third["night"]["cause"]) == (3, "regression", "conditions")
    assert "likely cause: conditions that are not recorded, as nothing that is recorded differs" in third["sentence"]


def test_the_nights_are_left_for_readers(folder: Path, nights: list[dict[str, Any]]) -> None:
    """A page, a JUnit report with one failure, the report of the study, and the metrics of the latest night."""
    study = folder / "results" / nights[2]["study"]
    assert (study / "night.md").read_text().startswith("# smoke: regression\n")
    assert (study / "report.html").exists()
    suite = ElementTree.parse(study / "junit.xml").getroot()  # noqa: S314 - our own file
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    metrics = (folder / "results/smoke/nightly.prom").read_text()
    assert 'hicache_tune_nightly_outcome_state{job_name="smoke",outcome="regression"} 1.0' in metrics
    assert 'hicache_tune_nightly_cause_state{cause="conditions",job_name="smoke"} 1.0' in metrics
