"""What each metric is: from which instant to which, and of which requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.load.record import RequestRecord, Status
from harness.metrics import METRICS, MetricName, Sample
from tests.support.requests import frame_of, request

METRIC = {metric.name: metric for metric in METRICS}


def sample(name: MetricName, records: list[RequestRecord], folder: Path) -> Sample:
    """Take the raw values of one metric."""
    return METRIC[name].sample(frame_of(records, folder))


@pytest.mark.parametrize(
    ("name", "value_s"),
    [
        (MetricName.TTFT, 1.5),
        (MetricName.TTFT_FROM_SENT, 1.1),
        (MetricName.TPOT, 0.2),
        (MetricName.E2E, 3.5),
        (MetricName.CLIENT_DELAY, 0.4),
    ],
)
def test_each_metric_runs_between_its_two_instants(name: MetricName, value_s: float, tmp_path: Path) -> None:
    """Due at 7, sent at 7.4, first token at 8.5, end at 10.5, ten tokens after the first."""
    found = sample(name, [request(due_s=7, late_s=0.4, ttft_s=1.5, reply_s=2.0)], tmp_path)
    assert found.values_s.tolist() == pytest.approx([value_s], rel=1e-12)


def test_no_nanosecond_is_lost_on_a_host_that_is_up_for_decades(tmp_path: Path) -> None:
    """Times are subtracted as integers: as floats they would be rounded to 128 ns."""
    record = request(ttft_s=1e-9 * 12_345_679)
    assert sample(MetricName.TTFT, [record], tmp_path).values_s.tolist() == [0.012345679]


EVERY_STATUS = [request(f"s{n}", status=status) for n, status in enumerate(Status)]


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        (MetricName.TTFT, {Status.OK, Status.CANCELLED}),
        (MetricName.TTFT_FROM_SENT, {Status.OK, Status.CANCELLED}),
        (MetricName.TPOT, {Status.OK}),
        (MetricName.E2E, {Status.OK}),
        (MetricName.CLIENT_DELAY, set(Status)),
    ],
)
def test_which_ends_count_for_which_metric(name: MetricName, counted: set[Status], tmp_path: Path) -> None:
    """A user who left had a first token and no end; what failed or was cut has no latency; all were sent."""
    found = sample(name, EVERY_STATUS, tmp_path)
    assert {list(Status)[row] for row in found.rows} == counted


def test_gaps_are_pooled_over_replies(tmp_path: Path) -> None:
    """Each gap is one value, of the request that it belongs to; a user who left has waited for those before."""
    records = [
        request("a", delta_gaps_ns=(10_000_000, 30_000_000)),
        request("b"),
        request("c", status=Status.FAILED, delta_gaps_ns=(99,)),
        request("d", status=Status.CANCELLED, delta_gaps_ns=(20_000_000,)),
    ]
    found = sample(MetricName.ITL, records, tmp_path)
    assert found.values_s.tolist() == [0.01, 0.03, 0.02]
    assert found.rows.tolist() == [0, 0, 3]


def test_tpot_is_of_replies_that_have_a_token_after_the_first(tmp_path: Path) -> None:
    """One token has none after it, and an unknown number is not guessed from the number of deltas."""
    records = [request(output_tokens=tokens, chunks=9) for tokens in (None, 0, 1, 2)]
    found = sample(MetricName.TPOT, records, tmp_path)
    assert (found.values_s.tolist(), found.rows.tolist()) == ([1.0], [3])


@pytest.mark.parametrize("name", MetricName)
def test_no_request_is_no_value(name: MetricName, tmp_path: Path) -> None:
    """An empty load has an empty sample, not an error."""
    found = sample(name, [], tmp_path)
    assert found.values_s.dtype == np.float64
    assert (len(found.values_s), len(found.rows)) == (0, 0)
