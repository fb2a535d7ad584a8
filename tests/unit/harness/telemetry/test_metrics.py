"""Scrapes: parsing, epochs and ranks."""

from __future__ import annotations

import math
import time

import pytest

from harness.errors import TelemetryError
from harness.telemetry import EngineGauges, MetricsSnapshot, Ranks
from harness.telemetry.catalog import EVICTED_TOKENS, LOAD_BACK_BYTES, TOKEN_USAGE, V15, V23, Feature
from harness.telemetry.metrics import combine, counters_dropped
from tests.support.recordings import case_snapshot, expected


def snapshot(text: str) -> MetricsSnapshot:
    """Parse a scrape."""
    return MetricsSnapshot.parse(text, taken_ns=0)


def test_dp_ranks_add() -> None:
    """Case 25: running requests and host tokens add over data-parallel ranks, and the fill is of the sums."""
    gauges = EngineGauges.of(case_snapshot(25, "dp2.prom"))
    wanted = expected(25)
    assert gauges.running_requests == wanted["num_running_reqs"]
    assert gauges.host_used_tokens == wanted["hicache_host_used_tokens"]
    assert gauges.host_total_tokens == wanted["hicache_host_total_tokens"]
    assert gauges.host_fill == wanted["host_fill"]
    assert gauges.generation_tokens_per_s == 820


def test_one_tensor_rank_of_each_data_parallel_rank_counts() -> None:
    """With data-parallel attention the first rank of replica 1 is not tp_rank 0."""
    tokens = snapshot(
        "\n".join(
            f'sglang:evicted_tokens_total{{cache_type="c",tp_rank="{tp}",pp_rank="0",dp_rank="{dp}"}} {value}'
            for tp, dp, value in [(0, 0, 100), (1, 0, 100), (2, 1, 30), (3, 1, 30)]
        )
    )
    ranks = Ranks(tp_size=4, dp_size=2, dp_attention=True)
    assert combine(EVICTED_TOKENS, tokens.named(EVICTED_TOKENS.name), ranks) == 130


def test_tensor_ranks_are_ordered_as_numbers() -> None:
    """Rank 10 does not come before rank 2."""
    lines = [f'sglang:evicted_tokens_total{{tp_rank="{rank}"}} {rank}' for rank in (10, 2)]
    tokens = snapshot("\n".join(lines))
    assert combine(EVICTED_TOKENS, tokens.named(EVICTED_TOKENS.name), Ranks()) == 2


def test_unlabelled_cache_counters_are_divided_by_the_ranks_that_were_added() -> None:
    """0.5.15's cache counters are the sum over tensor ranks."""
    tokens = snapshot('sglang:evicted_tokens_total{cache_type="HiRadixCache"} 8000')
    found = combine(EVICTED_TOKENS, tokens.named(EVICTED_TOKENS.name), Ranks(tp_size=4, pp_size=2))
    assert found == 1000


def test_bytes_add_over_ranks() -> None:
    """Each rank moves its own bytes."""
    lines = [f'sglang:load_back_bytes_total{{tp_rank="{rank}"}} 500' for rank in (0, 1)]
    copied = snapshot("\n".join(lines))
    assert combine(LOAD_BACK_BYTES, copied.named(LOAD_BACK_BYTES.name), Ranks(tp_size=2)) == 1000


def test_the_fullest_rank_stands_for_a_ratio() -> None:
    """Token usage is that of the fullest rank, and a value that is not a number is none."""
    lines = [f'sglang:token_usage{{dp_rank="{rank}"}} {value}' for rank, value in enumerate(("0.2", "0.9", "NaN"))]
    usage = snapshot("\n".join(lines))
    assert combine(TOKEN_USAGE, usage.named(TOKEN_USAGE.name), Ranks()) == 0.9
    assert EngineGauges.of(snapshot("sglang:token_usage NaN")).token_usage is None


def test_unknown_gauges_are_none() -> None:
    """An engine that shows nothing has unknown gauges, not zeros."""
    gauges = EngineGauges.of(snapshot(""))
    assert (gauges.running_requests, gauges.host_fill, gauges.max_total_num_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("after", "dropped"),
    [
        ("# TYPE a counter\na_total 5", False),
        ("# TYPE a counter\na_total 6", False),
        ("# TYPE a counter\na_total 4", True),
        ("# TYPE b counter\nb_total 9", True),
    ],
)
def test_a_counter_that_falls_or_vanishes_starts_an_epoch(after: str, dropped: bool) -> None:
    """Only growth, or standing still, is the same engine process."""
    assert counters_dropped(snapshot("# TYPE a counter\na_total 5"), snapshot(after)) is dropped


def test_gauges_may_fall() -> None:
    """A gauge whose name ends in _count is no counter."""
    name = "sglang:routing_key_running_req_count"
    before, after = (snapshot(f"# TYPE {name} gauge\n{name} {value}") for value in (9, 1))
    assert not counters_dropped(before, after)


def test_histogram_counts_start_an_epoch_and_sums_do_not() -> None:
    """A sum may fall by a negative observation; a count may not."""
    text = '# TYPE h histogram\nh_bucket{{le="+Inf"}} {n}\nh_count {n}\nh_sum {s}'
    before = snapshot(text.format(n=5, s=3.0))
    assert not counters_dropped(before, snapshot(text.format(n=6, s=2.5)))
    assert counters_dropped(before, snapshot(text.format(n=4, s=3.0)))


def test_version_and_features_come_from_the_metrics_that_exist() -> None:
    """A metric that only 0.5.23 has tells it apart; the host gauges tell that HiCache is on."""
    plain = snapshot("sglang:token_usage 0.1")
    assert (plain.version, plain.features) == (V15, frozenset({Feature.ENGINE}))
    newer = snapshot("sglang:kv_cache_memory_usage_gb 1.5\nsglang:hicache_host_total_tokens 0")
    assert (newer.version, newer.features) == (V23, frozenset(Feature))


@pytest.mark.parametrize("text", ["<html><body>502</body></html>", "a{b=1} 3", 'a{b="x"} y', "{"])
def test_another_page_than_metrics_is_an_error_with_its_address(text: str) -> None:
    """A page that is no scrape raises one sentence that names where it came from."""
    with pytest.raises(TelemetryError, match=r"http://h/metrics does not answer in the Prometheus text format"):
        MetricsSnapshot.parse(text, where="http://h/metrics")


def test_a_scrape_is_stamped_with_now() -> None:
    """Without a time the snapshot carries the monotonic clock of its parsing."""
    start_ns = time.monotonic_ns()
    assert start_ns <= MetricsSnapshot.parse("").taken_ns <= time.monotonic_ns()


def test_not_a_number_is_kept_in_the_samples() -> None:
    """Parsing keeps NaN; only combining leaves it out."""
    (sample,) = snapshot("# TYPE g gauge\ng NaN").samples
    assert math.isnan(sample.value)
