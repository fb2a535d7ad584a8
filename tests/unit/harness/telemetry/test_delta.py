"""Deltas: what the caches did in one window of one epoch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.load.reply import ChatReply
from harness.telemetry import CacheDelta, MetricsSnapshot, Ranks
from harness.telemetry.delta import counter_increase
from tests.support.recordings import case_folder, case_snapshot, expected

ENGINE_UP = "# TYPE sglang:max_total_num_tokens gauge\nsglang:max_total_num_tokens 1000\n"
HICACHE_UP = ENGINE_UP + "# TYPE sglang:hicache_host_total_tokens gauge\nsglang:hicache_host_total_tokens 9000\n"
NEWER_UP = HICACHE_UP + "sglang:kv_cache_memory_usage_gb 1\n"


def delta(before: str, after: str, ranks: Ranks | None = None) -> CacheDelta:
    """Subtract two scrapes given as text."""
    return CacheDelta.between(
        MetricsSnapshot.parse(before, taken_ns=1), MetricsSnapshot.parse(after, taken_ns=2), ranks
    )


def case_delta(number: int) -> CacheDelta:
    """Subtract the two scrapes of a case."""
    return CacheDelta.between(case_snapshot(number, "before.prom", 1), case_snapshot(number, "after.prom", 2))


def cached(**tokens: int) -> str:
    """Write the cached-token series by source."""
    lines = [f'sglang:cached_tokens_total{{cache_source="{source}"}} {count}' for source, count in tokens.items()]
    return "# TYPE sglang:cached_tokens counter\n" + "\n".join(lines) + "\n"


def test_the_hit_rate_is_of_the_counters_not_of_the_gauge() -> None:
    """Case 21: the gauge says 0, the counters grew by three quarters of the prompt tokens."""
    found = case_delta(21)
    assert found.hit_rate == expected(21)["hit_rate"]
    assert (found.device_cached_tokens, found.host_cached_tokens) == (4000, 2000)
    assert (found.start_ns, found.end_ns, found.epoch_reset) == (1, 2, False)


def test_a_series_that_was_never_made_is_zero_with_a_mark() -> None:
    """Case 23: the host tier was written and never read, which is shown and not hidden in a missing series."""
    found, wanted = case_delta(23), expected(23)
    assert found.host_cached_tokens == wanted["host_hits"]
    assert wanted["host_hits_state"] == "series absent"
    assert 'sglang:cached_tokens_total{cache_source="host"}' in found.absent
    assert 'sglang:cached_tokens_total{cache_source="device"}' not in found.absent
    assert found.load_back_tokens == wanted["reload_tokens"]
    assert found.hit_rate == wanted["hit_rate"]
    assert wanted["warn"] in found.warnings
    assert (found.evicted_tokens, found.backup_tokens) == (350000, 52000)


def test_client_and_server_that_disagree_are_reported() -> None:
    """Case 27: usage without details is unknown, not zero, and the engine's own count stands."""
    recording = json.loads((case_folder(27) / "usage.json").read_text())
    reply = ChatReply()
    reply.feed(json.dumps({"choices": [], "usage": recording["usage"]}), now_ns=0)
    server = recording["server_delta"]
    found = delta(ENGINE_UP, "\n".join([ENGINE_UP, *(f"{name} {count}" for name, count in server.items())]))
    wanted = expected(27)
    assert reply.cached_tokens == wanted["client_cached_tokens"]
    assert found.cached_tokens == wanted["server_cached_tokens"]
    said = found.disagreement(reply.cached_tokens)
    assert said is not None
    assert said.startswith(wanted["warn"])
    assert "--enable-cache-report" in said
    assert found.hit_rate == pytest.approx(2048 / 2600)


@pytest.mark.parametrize("client_tokens", [0, 99])
def test_a_client_count_that_differs_is_named(client_tokens: int) -> None:
    """Both figures are in the sentence."""
    found = delta(ENGINE_UP, ENGINE_UP + cached(device=100))
    assert found.disagreement(100) is None
    assert f"told {client_tokens} tokens, the engine counted 100" in str(found.disagreement(client_tokens))


def test_a_client_that_was_told_nothing_agrees_with_nothing_cached() -> None:
    """Unknown and zero do not disagree, nor does anything with an engine that does not count."""
    assert delta(ENGINE_UP, ENGINE_UP).disagreement(None) is None
    assert delta("", "").disagreement(5) is None


def test_a_relaunch_counts_from_zero() -> None:
    """Case 29: a drop starts the counter again, and is counted."""
    lines = (case_folder(29) / "samples.jsonl").read_text().splitlines()
    found = counter_increase(json.loads(line)["load_back_tokens_total"] for line in lines)
    wanted = expected(29)
    assert (found.increase, found.resets) == (wanted["increase"], wanted["resets"])


def test_a_reset_of_any_counter_resets_the_window() -> None:
    """Counters that happened to grow past their old value are not subtracted across a relaunch."""
    requests = "# TYPE sglang:num_requests counter\nsglang:num_requests_total {}\n"
    prompts = "# TYPE sglang:prompt_tokens counter\nsglang:prompt_tokens_total {}\n"
    found = delta(requests.format(90) + prompts.format(10), requests.format(3) + prompts.format(700))
    assert found.epoch_reset
    assert (found.requests, found.prompt_tokens) == (3, 700)
    assert any("another process answered" in warning for warning in found.warnings)


def test_unknown_is_none_and_absent_of_a_known_feature_is_zero() -> None:
    """Without HiCache nothing is known of reloads; with it a missing series means that none has happened."""
    off = delta(ENGINE_UP, ENGINE_UP)
    assert (off.load_back_tokens, off.load_back_count, off.load_back_seconds) == (None, None, None)
    assert (off.evicted_tokens, off.eviction_count, off.eviction_seconds) == (0, 0, 0.0)
    assert not off.load_back_seconds_is_bookkeeping
    assert not any("load_back" in name for name in off.absent)
    on = delta(HICACHE_UP, HICACHE_UP)
    assert (on.load_back_tokens, on.load_back_count, on.load_back_seconds) == (0, 0, 0.0)
    assert {"sglang:load_back_tokens_total", "sglang:load_back_duration_seconds"} <= set(on.absent)
    nothing = delta("", "")
    assert (nothing.prompt_tokens, nothing.cached_tokens, nothing.hit_rate) == (None, None, None)
    assert nothing.absent == ()


def test_only_the_newer_version_is_known_to_count_bytes_and_backups() -> None:
    """0.5.15 has no such counter, so they are unknown; 0.5.23 has, so missing means zero."""
    older, newer = delta(HICACHE_UP, HICACHE_UP), delta(NEWER_UP, NEWER_UP)
    assert (older.load_back_bytes, older.backup_tokens) == (None, None)
    assert (newer.load_back_bytes, newer.backup_tokens) == (0, 0)
    assert (older.sglang_metrics_version, newer.sglang_metrics_version) == ("0.5.15", "0.5.23")
    assert older.load_back_seconds_is_bookkeeping
    assert not newer.load_back_seconds_is_bookkeeping


def test_no_prompt_token_means_no_hit_rate() -> None:
    """An idle window has no hit rate, not one of zero."""
    found = delta(ENGINE_UP, ENGINE_UP)
    assert (found.prompt_tokens, found.hit_rate) == (0, None)


def test_cached_tokens_without_a_tier_count_and_leave_the_tiers_unknown() -> None:
    """The engine's fallback source `total` is part of the hit rate; no tier is claimed to be zero."""
    prompts = "# TYPE sglang:prompt_tokens counter\nsglang:prompt_tokens_total 400\n"
    found = delta(ENGINE_UP, ENGINE_UP + prompts + cached(total=100))
    assert (found.cached_tokens, found.hit_rate, found.untiered_cached_tokens) == (100, 0.25, 100)
    tiers = (found.device_cached_tokens, found.host_cached_tokens, found.storage_cached_tokens)
    assert tiers == (None, None, None)
    assert any("without their tier" in warning for warning in found.warnings)


def test_every_storage_backend_is_the_storage_tier() -> None:
    """Storage sources carry the name of their backend."""
    found = delta(ENGINE_UP, ENGINE_UP + cached(device=1, storage_HiCacheFile=20, storage_mooncake=300))
    assert (found.storage_cached_tokens, found.cached_tokens) == (320, 321)


def test_streaming_and_other_requests_add() -> None:
    """0.5.23 splits the counters by is_streaming."""
    lines = [f'sglang:prompt_tokens_total{{is_streaming="{flag}"}} {n}' for flag, n in (("true", 5), ("false", 6))]
    assert delta(NEWER_UP, NEWER_UP + "\n".join(lines)).prompt_tokens == 11


def test_only_the_kv_pool_of_one_rank_counts_as_reloaded_tokens() -> None:
    """0.5.23 labels ranks and pools: tokens of one rank and the KV pool, bytes of all."""
    lines = [
        f'sglang:load_back_{what}_total{{pool="{pool}",tp_rank="{rank}"}} {count}'
        for what, count in (("tokens", 100), ("bytes", 4000))
        for pool in ("kv", "mamba")
        for rank in (0, 1)
    ]
    found = delta(NEWER_UP, NEWER_UP + "\n".join(lines), Ranks(tp_size=2))
    assert (found.load_back_tokens, found.load_back_bytes) == (100, 16000)


def test_unlabelled_histograms_are_divided_by_the_ranks_too() -> None:
    """Two tensor ranks evict at the same time: 6 observations of 3 s are 3 evictions of 1.5 s."""
    name = "sglang:eviction_duration_seconds"
    text = f'# TYPE {name} histogram\n{name}_bucket{{le="+Inf"}} 6\n{name}_count 6\n{name}_sum 3.0\n'
    found = delta(ENGINE_UP, ENGINE_UP + text, Ranks(tp_size=2))
    assert (found.eviction_count, found.eviction_seconds) == (3, 1.5)


COUNTS = st.integers(min_value=0, max_value=10**9)
SOURCES = ("device", "host", "storage_file")


@settings(deadline=None)
@given(start=st.tuples(*[COUNTS] * 3), grown=st.tuples(*[COUNTS] * 3), made=st.integers(0, 3))
def test_growth_is_what_was_added_whenever_the_series_was_made(
    start: tuple[int, ...], grown: tuple[int, ...], made: int
) -> None:
    """Series that appear inside the window start at zero; the tiers add up to the whole."""
    before = dict(list(zip(SOURCES, start, strict=True))[:made])
    after = {source: before.get(source, 0) + more for source, more in zip(SOURCES, grown, strict=True)}
    found = delta(ENGINE_UP + cached(**before), ENGINE_UP + cached(**after))
    tiers = (found.device_cached_tokens, found.host_cached_tokens, found.storage_cached_tokens)
    assert tiers == grown
    assert (found.cached_tokens, found.epoch_reset) == (sum(grown), False)


@settings(deadline=None)
@given(before=st.tuples(*[COUNTS] * 3), after=st.tuples(*[COUNTS] * 3))
def test_any_fall_is_an_epoch_and_no_count_is_ever_negative(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Whatever the counters do, a fall is seen and deltas do not cross it."""
    found = delta(
        ENGINE_UP + cached(**dict(zip(SOURCES, before, strict=True))),
        ENGINE_UP + cached(**dict(zip(SOURCES, after, strict=True))),
    )
    fell = any(now < then for then, now in zip(before, after, strict=True))
    assert found.epoch_reset is fell
    tiers = (found.device_cached_tokens, found.host_cached_tokens, found.storage_cached_tokens)
    assert tiers == (after if fell else tuple(now - then for then, now in zip(before, after, strict=True)))


@settings(deadline=None)
@given(increments=st.lists(COUNTS, max_size=30), relaunches=st.sets(st.integers(0, 29)))
def test_the_increase_is_what_was_counted_between_readings(increments: list[int], relaunches: set[int]) -> None:
    """A counter that restarts at zero before some readings loses nothing that came after the restart."""
    readings, counter, counted, resets = [0], 0, 0, 0
    for place, increment in enumerate(increments):
        if place in relaunches and increment < counter:  # a restart that is not outgrown before the next reading
            counter, resets = 0, resets + 1
        counter += increment
        counted += increment
        readings.append(counter)
    found = counter_increase(readings)
    assert (found.increase, found.resets) == (counted, resets)
