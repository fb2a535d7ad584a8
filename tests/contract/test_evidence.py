"""Trials that an earlier version wrote on an H200 (docs/evidence): they load, and their records give equal figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.load.record import read_records
from harness.metrics import MetricName
from harness.store import TrialRecord
from harness.summary import Summary, summarise

pytestmark = pytest.mark.contract

EVIDENCE = Path(__file__).parents[2] / "docs/evidence/h200-2026-11-30"
TRIALS = sorted(path.stem for path in (EVIDENCE / "trials").glob("*.json"))


def recorded(name: str) -> Summary:
    """Read the summary that was written then."""
    path = EVIDENCE / f"trials/{name}.json"
    record = TrialRecord.parse(json.loads(path.read_text(encoding="utf-8")), where=str(path))
    assert record.summary is not None
    return record.summary


@pytest.mark.parametrize("name", TRIALS)
def test_a_summary_of_before_is_that_of_now(name: str) -> None:
    """Quantiles are equal to the last digit and intervals but for rounding; what was not kept then is unknown."""
    then, now = recorded(name), summarise(read_records(EVIDENCE / f"requests/{name}.parquet"), not_played=0)
    assert then.steady is not None
    assert now.steady is not None
    assert then.steady.p999_s is None
    assert (then.metrics, then.window, then.cancelled) == ({}, None, 0)
    same = ("count", "p50_s", "p90_s", "p95_s", "p99_s", "max_s", "confident")
    assert [getattr(then.steady, field) for field in same] == [getattr(now.steady, field) for field in same]
    bounds = ("p99_low_s", "p99_high_s")
    assert [getattr(now.steady, field) for field in bounds] == pytest.approx(
        [getattr(then.steady, field) for field in bounds], rel=1e-12
    )
    assert (now.counted, now.ok, now.error_rate, now.diverges) == (
        then.counted, then.ok, then.error_rate, then.diverges,
    )  # fmt: skip


@pytest.mark.parametrize("name", TRIALS)
def test_the_counted_requests_of_our_plans_lie_in_the_steady_window(name: str) -> None:
    """Warm-up sessions take the stampede and fillers the ramp-down: at most one request in a hundred lies outside."""
    found = summarise(read_records(EVIDENCE / f"requests/{name}.parquet"), not_played=0)
    assert found.window is not None
    assert found.window.usual_sessions == 64
    assert found.window.stampede_end_s < found.window.start_s
    assert found.window.counted_outside <= found.counted / 100
    assert MetricName.ITL not in found.metrics, "gaps were not kept then"
