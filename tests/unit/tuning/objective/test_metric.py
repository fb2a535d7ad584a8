"""Metrics of a record, and the same figures from its requests."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engine.memory import MemoryForecast, SeenMemory
from harness.engine.setting import Setting
from harness.load.record import RequestRecord, Status
from harness.metrics import Slo
from harness.reload_cost import reload_cost
from harness.store import TrialRecord
from harness.summary import summarise
from harness.telemetry import CacheDelta
from scenarios.plan import Phase
from tests.support.requests import frame_of, loads, request
from tests.support.study_data import PROMPT_TOKENS, cache_delta
from tests.support.trials import failed, measured
from tuning.objective import METRICS, SessionMetric, read_metric, read_objective

OFF, ON = Setting(hicache=False), Setting(hicache=True)
LEVEL = "goodput{ttft=2s,tpot=1s}"
TOLD_BY_REQUESTS = [
    *(name for name in METRICS if name != "goodput" and isinstance(read_metric(name), SessionMetric)),
    LEVEL, "ttft.p99{turn=0}", "itl.p50{tier=host}", "e2e.p90{prompt=1k-2k}", "ttft.p99{window=whole}",
]  # fmt: skip


def record_of(load: pd.DataFrame) -> TrialRecord:
    """Summarise a load as a trial does that was asked for LEVEL."""
    return measured(ON, summary=summarise(load, not_played=0, slos=[Slo(ttft_s=2.0, tpot_s=1.0)]))


@settings(max_examples=60, deadline=None)
@given(loads(most=25), st.sampled_from(TOLD_BY_REQUESTS))
def test_the_requests_tell_what_the_record_says(records: list[RequestRecord], text: str) -> None:
    """Search and verdict mean the same figure; what has no request has no value."""
    with tempfile.TemporaryDirectory() as folder:
        load = frame_of(records, Path(folder))
    metric = read_objective(text)
    value, rows = metric.value(record_of(load)), metric.sample(load)
    assert {"session_id", "turn"} <= set(rows.columns)
    if rows.empty:
        assert not value
    else:
        found = metric.statistic(rows.assign(session=rows["session_id"])).value()
        assert found == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_a_group_of_requests_is_that_of_the_records(tmp_path: Path) -> None:
    """First turns here; a warm-up counts for the whole run alone."""
    records = [request(turn=0, ttft_s=3.0), request(turn=1), request("w", ttft_s=9.0, phase=Phase.WARMUP)]
    load = frame_of(records, tmp_path)
    for text, values in {"ttft.p50": 2.0, "ttft.p50{turn=0}": 3.0, "ttft.max{window=whole}": 9.0}.items():
        metric = read_objective(text)
        rows = metric.sample(load)
        assert metric.value(record_of(load)) == values
        assert metric.statistic(rows.assign(session=rows["session_id"])).value() == values


def test_what_failed_is_judged_by_a_goodput(tmp_path: Path) -> None:
    """One of three is in time; a cut request is not judged."""
    late, lost, cut = request("b", ttft_s=3.0), request("c", status=Status.FAILED), request("d", status=Status.CUT)
    load = frame_of([request("a"), late, lost, cut], tmp_path)
    assert read_metric(LEVEL).value(record_of(load)) == pytest.approx(1 / 3)
    assert len(read_objective(LEVEL).sample(load)) == 3


@pytest.mark.parametrize("text", [name if name != "goodput" else LEVEL for name in METRICS])
def test_a_trial_without_a_load_has_no_metric_of_it(text: str) -> None:
    """What was not seen is None, never zero."""
    assert read_metric(text).value(failed(ON)) is None


@pytest.mark.parametrize(
    ("record", "bytes_of_pools"),
    [
        (measured(OFF), 0.0),
        (measured(ON), None),
        (measured(ON, seen=SeenMemory(), forecast=MemoryForecast(host_pool_bytes=7)), 7.0),
        (measured(ON, seen=SeenMemory(host_pool_bytes=9), forecast=MemoryForecast(host_pool_bytes=7)), 9.0),
        (failed(ON, forecast=MemoryForecast(host_pool_bytes=7)), 7.0),
    ],
)
def test_host_memory_is_that_of_the_pools(record: TrialRecord, bytes_of_pools: float | None) -> None:
    """Seen, or else foretold: a launch that was refused for its memory still tells how much it wanted."""
    assert read_metric("host_memory").value(record) == bytes_of_pools


def test_reloaded_bytes_are_what_the_reloads_cost(tmp_path: Path) -> None:
    """Tokens by their size where the engine does not count bytes; none without HiCache."""
    counts = cache_delta(host_tokens=1000)
    cost = reload_cost(frame_of([request()], tmp_path), counts, kv_bytes_per_token=64)
    bytes_of = read_metric("reload_bytes").value
    assert bytes_of(measured(ON, cache=counts, reload=cost)) == 64_000
    assert bytes_of(measured(ON, cache=counts)) is None
    assert bytes_of(measured(OFF, cache=cache_delta(host_tokens=None))) == 0


@pytest.mark.parametrize(
    ("counts", "ratios"),
    [
        (None, (None, None, None)),
        (cache_delta(host_tokens=18_000), (70_000 / PROMPT_TOKENS, 52_000 / PROMPT_TOKENS, 0.1)),
        (cache_delta(host_tokens=None), (52_000 / PROMPT_TOKENS, 52_000 / PROMPT_TOKENS, None)),
        (cache_delta(host_tokens=None, prompt_tokens=0), (None, None, None)),
    ],
)
def test_cached_tokens_are_a_share_of_the_prompt(counts: CacheDelta | None, ratios: tuple[float | None, ...]) -> None:
    """As a whole and by tier; a tier that the engine does not have is unknown."""
    record = measured(ON, cache=counts)
    names = ("cached_ratio", "cached_ratio.device", "cached_ratio.host")
    assert tuple(read_metric(name).value(record) for name in names) == ratios
