"""Holds the table of metric names and the deltas against recordings of real SGLang 0.5.15 servers."""

from __future__ import annotations

import gzip
import json
import math

import pytest

from harness.telemetry import CacheDelta
from harness.telemetry.catalog import (
    ABORTED,
    EVICTED_TOKENS,
    LOAD_BACK_TOKENS,
    METRICS,
    RETRACTED,
    V15,
    Feature,
    Kind,
)
from harness.telemetry.histogram import HistogramWindow
from harness.telemetry.metrics import MetricsSnapshot, counters_dropped
from tests.support.recordings import METRICS as RECORDINGS
from tests.support.recordings import recorded

pytestmark = pytest.mark.contract

H200_HICACHE = ("wt60", "wb60", "wts60")
H200_OFF = ("off", "off2", "frac50")
CPU_HICACHE = ("hicache_ps1", "hicache_l3_ps16", "hicache_kernel_ps16_notriton")
AFTER_LOAD = {
    **{f"h200 {run}": f"h200-0.5.15/metrics_after_{run}.txt.gz" for run in H200_HICACHE + H200_OFF},
    **{f"cpu {run}": f"cpu-0.5.15/{run}.txt.gz" for run in (*CPU_HICACHE, "vanilla_nohicache_ps1")},
}
ALWAYS_AFTER_LOAD = [
    spec
    for spec in METRICS
    if V15 in spec.versions and spec not in (ABORTED, RETRACTED, EVICTED_TOKENS) and spec.kind is not Kind.HISTOGRAM
]


def h200(run: str) -> CacheDelta:
    """Subtract the scrapes around one load on the H200."""
    return CacheDelta.between(
        recorded(f"h200-0.5.15/metrics_before_{run}.txt.gz"), recorded(f"h200-0.5.15/metrics_after_{run}.txt.gz")
    )


@pytest.mark.parametrize("path", AFTER_LOAD.values(), ids=AFTER_LOAD.keys())
def test_every_name_exists_where_its_feature_is_on(path: str) -> None:
    """After a load all names of the engine exist, those of HiCache exactly where it was on."""
    snapshot = recorded(path)
    hicache_on = not any(word in path for word in ("off", "frac50", "vanilla"))
    assert (Feature.HICACHE in snapshot.features) is hicache_on
    for spec in ALWAYS_AFTER_LOAD:
        assert snapshot.has(spec) is (spec.feature is Feature.ENGINE or hicache_on), spec.name
    assert snapshot.version == V15


@pytest.mark.parametrize("platform", ["h200", "cpu"])
def test_every_name_of_this_version_was_seen_and_none_of_the_newer_one(platform: str) -> None:
    """Each name of the table is in some recording of each machine; the exceptions are those that never happened."""
    snapshots = [recorded(path) for name, path in AFTER_LOAD.items() if name.startswith(platform)]
    unseen = {spec for spec in METRICS if not any(snapshot.has(spec) for snapshot in snapshots)}
    newer = {spec for spec in METRICS if V15 not in spec.versions}
    never_happened = {"h200": {ABORTED}, "cpu": {ABORTED, RETRACTED}}[platform]
    assert unseen == newer | never_happened


@pytest.mark.parametrize("path", AFTER_LOAD.values(), ids=AFTER_LOAD.keys())
def test_kinds_are_those_of_the_recording(path: str) -> None:
    """What the table calls a counter or histogram is one that may only grow; a gauge is not."""
    snapshot = recorded(path)
    for spec in METRICS:
        name = f"{spec.name}_count" if spec.kind is Kind.HISTOGRAM else spec.name
        assert all(sample.cumulative is (spec.kind is not Kind.GAUGE) for sample in snapshot.named(name)), name


@pytest.mark.parametrize(
    ("run", "hit_rate", "device_millions", "host_millions", "eviction_s", "evictions"),
    [
        ("off", 0.284, 0.71, 0, 0.024, 204),
        ("off2", 0.231, 0.81, 0, 0.030, 276),
        ("wt60", 0.839, 2.20, 1.80, 0.073, 357),
        ("wb60", 0.839, 2.11, 1.90, 7.89, 388),
        ("wts60", 0.836, 2.21, 1.78, 0.069, 384),
        ("frac50", 0.839, 4.01, 0, 0, 0),
    ],
)
def test_deltas_give_the_figures_that_were_worked_out_by_hand(
    run: str, hit_rate: float, device_millions: float, host_millions: float, eviction_s: float, evictions: int
) -> None:
    """The table of the hand-run H200 measurement, from its raw scrapes."""
    delta = h200(run)
    assert not delta.epoch_reset
    assert delta.hit_rate is not None
    assert round(delta.hit_rate, 3) == hit_rate
    assert delta.device_cached_tokens is not None
    assert round(delta.device_cached_tokens / 1e6, 2) == device_millions
    assert delta.host_cached_tokens is not None
    assert round(delta.host_cached_tokens / 1e6, 2) == host_millions
    assert delta.storage_cached_tokens == 0
    assert delta.eviction_seconds == pytest.approx(eviction_s, abs=0.005)
    assert delta.eviction_count == evictions


@pytest.mark.parametrize("run", H200_HICACHE)
def test_reloaded_tokens_are_host_hits_three_times_over(run: str) -> None:
    """The cache's own counter, the tokenizer's, and the client's sum of host tokens are one number."""
    delta = h200(run)
    rows = json.loads(gzip.decompress((RECORDINGS / f"h200-0.5.15/rec_{run}.json.gz").read_bytes()))
    host = rows["cols"].index("host")
    client_tokens = sum(row[host] or 0 for row in rows["rec"])
    assert delta.load_back_tokens == delta.host_cached_tokens == client_tokens > 1_000_000
    assert delta.disagreement(rows["summary"]["cached"]) is None
    assert delta.requests == 512
    assert delta.prompt_tokens == rows["summary"]["prompt_tokens"]


@pytest.mark.parametrize("run", H200_OFF)
def test_without_hicache_reloads_are_unknown_and_not_zero(run: str) -> None:
    """The engine has no host tier, so it cannot say how often it was read."""
    delta = h200(run)
    assert (delta.load_back_tokens, delta.load_back_count, delta.load_back_seconds) == (None, None, None)
    assert (delta.at_end.host_used_tokens, delta.at_end.host_fill) == (None, None)


def test_the_timer_of_0_5_15_is_marked_as_bookkeeping() -> None:
    """1.8 M tokens in 0.118 s would be 880 GB/s; the figure is kept, and marked."""
    delta = h200("wt60")
    assert delta.load_back_count == 215
    assert delta.load_back_seconds == pytest.approx(0.1178, abs=1e-4)
    assert delta.load_back_seconds_is_bookkeeping
    assert delta.load_back_bytes is None


def test_gauges_at_the_end_are_those_of_the_recording() -> None:
    """Pool sizes and use, and a request that was sent back to the queue for want of KV space."""
    gauges = h200("wt60").at_end
    assert (gauges.max_total_num_tokens, gauges.host_total_tokens) == (340_362, 1_046_317)
    assert (gauges.host_used_tokens, gauges.token_usage) == (805_813, 0.04)
    assert h200("off").retracted == 1
    assert h200("wt60").retracted == 0
    assert "sglang:num_retracted_requests_total" in h200("wt60").absent


def test_storage_hits_pass_through_the_host_tier() -> None:
    """On the engine with a storage tier, reloaded tokens are those of host and storage together."""
    delta = CacheDelta.between(MetricsSnapshot(0), recorded("cpu-0.5.15/hicache_l3_ps16.txt.gz"))
    assert (delta.host_cached_tokens, delta.storage_cached_tokens) == (4928, 2208)
    assert delta.load_back_tokens == 4928 + 2208


def test_a_relaunch_between_two_recordings_is_seen() -> None:
    """The before of one server and the after of an earlier one do not belong together."""
    before, after = (recorded(f"h200-0.5.15/metrics_{name}.txt.gz") for name in ("after_wb60", "before_wt60"))
    assert counters_dropped(before, after)
    assert CacheDelta.between(before, after).epoch_reset


def test_real_histograms_bound_their_quantiles() -> None:
    """write_back's evictions take about 20 ms each, write_through's well under one."""
    windows = {
        run: HistogramWindow.between(
            recorded(f"h200-0.5.15/metrics_before_{run}.txt.gz"),
            recorded(f"h200-0.5.15/metrics_after_{run}.txt.gz"),
            "sglang:eviction_duration_seconds",
        )
        for run in ("wb60", "wt60")
    }
    back, through = windows["wb60"].quantile_bounds(0.5), windows["wt60"].quantile_bounds(0.5)
    assert back is not None
    assert through is not None
    assert back[0] <= 0.02 <= back[1]
    assert through[1] <= 0.001
    assert all(math.isinf(window.buckets[-1][0]) for window in windows.values())


def test_the_feature_of_a_metric_is_where_it_was_seen() -> None:
    """No engine without HiCache has a metric that the table gives to HiCache."""
    snapshots = [recorded(path) for name, path in AFTER_LOAD.items() if name.endswith(H200_OFF)]
    assert not any(snapshot.has(spec) for snapshot in snapshots for spec in METRICS if spec.feature is Feature.HICACHE)
    assert LOAD_BACK_TOKENS.feature is Feature.HICACHE
