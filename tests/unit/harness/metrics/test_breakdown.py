"""Quantiles of every metric by group: exact, complete, and the same in whatever order the records come."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.load.record import RequestRecord
from harness.metrics import METRICS, Breakdown, Latency, Metric, MetricName, breakdown, breakdowns
from harness.metrics.latency import QUANTILES
from tests.support.requests import frame_of, loads, request

FEW = settings(max_examples=25, deadline=None)
"""Each example resamples dozens of groups."""
PARTS = ("by_turn", "by_tier", "by_prompt")


def frame(records: Sequence[RequestRecord]) -> pd.DataFrame:
    """Read records back from a file that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return frame_of(records, Path(folder))


def ladder(latency: Latency) -> list[float]:
    """Return the quantiles from the lowest to the largest value."""
    assert latency.p999_s is not None
    return [latency.p50_s, latency.p90_s, latency.p95_s, latency.p99_s, latency.p999_s, latency.max_s]


@FEW
@given(loads())
def test_quantiles_are_those_of_numpy_on_the_raw_values(records: list[RequestRecord]) -> None:
    """Every quantile of every metric is numpy's, in order, and within the values."""
    load = frame(records)
    found = breakdowns(load)
    for metric in METRICS:
        values = metric.sample(load).values_s
        assert (metric.name in found) is (len(values) > 0)
        if len(values):
            overall = found[metric.name].overall
            assert overall is not None
            assert overall.count == len(values)
            for field, q in QUANTILES.items():
                assert getattr(overall, field) == np.quantile(values, q)
            assert ladder(overall) == sorted(ladder(overall))
            assert values.min() <= overall.p50_s
            assert overall.max_s == values.max()


@FEW
@given(loads())
def test_groups_leave_nothing_out_and_count_nothing_twice(records: list[RequestRecord]) -> None:
    """The counts of the groups of each division add up to the whole, and no group is slower than it."""
    for found in breakdowns(frame(records)).values():
        assert found.overall is not None
        for part in PARTS:
            groups: dict[str, Latency] = getattr(found, part)
            assert sum(each.count for each in groups.values()) == found.overall.count
            assert max(each.max_s for each in groups.values()) == found.overall.max_s
            assert all(each.count > 0 for each in groups.values())


@FEW
@given(loads(), st.data())
def test_the_order_of_the_records_does_not_matter(records: list[RequestRecord], data: st.DataObject) -> None:
    """Records come in the order in which requests ended, by several processes: the figures are the same."""
    shuffled = data.draw(st.permutations(records))
    assert breakdowns(frame(records)) == breakdowns(frame(shuffled))


@FEW
@given(loads(), loads())
def test_two_frames_together_are_the_records_of_both(one: list[RequestRecord], other: list[RequestRecord]) -> None:
    """Merging load processes is putting their records together, never averaging their figures."""
    merged = pd.concat([frame(one), frame(other)], ignore_index=True)
    assert breakdowns(merged) == breakdowns(frame([*one, *other]))


def test_groups_stand_in_the_order_of_reading(tmp_path: Path) -> None:
    """Shortest prompts, earliest turns and quickest tiers first."""
    records = [
        request(turn=12, prompt_tokens=9000, cached_tokens=0),
        request(turn=2, prompt_tokens=300, cached_tokens=9, host_cached_tokens=9),
        request(turn=0, prompt_tokens=None, cached_tokens=9, device_cached_tokens=9),
    ]
    found = breakdown(frame_of(records, tmp_path), METRICS[0])
    assert list(found.by_turn) == ["0", "2", "10+"]
    assert list(found.by_tier) == ["device", "host", "none"]
    assert list(found.by_prompt) == ["256-512", "8k-16k", "unknown"]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.name))
def test_a_breakdown_survives_its_file(metric: Metric, tmp_path: Path) -> None:
    """JSON and back is the same."""
    found = breakdown(frame_of([request(f"s{n}", n, delta_gaps_ns=(5, 6)) for n in range(4)], tmp_path), metric)
    assert found.overall is not None
    assert Breakdown.model_validate_json(found.model_dump_json()) == found


def test_a_metric_without_a_value_is_left_out(tmp_path: Path) -> None:
    """Records of before the gaps were kept have no ITL: no row of zeros."""
    assert MetricName.ITL not in breakdowns(frame_of([request()], tmp_path))
