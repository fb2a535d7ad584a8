"""The one table of the engine metrics that are read: name, kind, versions, rank rule and where it comes from.

Code refers to the constants, never to a name, so that a test can hold every name against real recordings and
a page of the manual can be made from the table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """The Prometheus type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Feature(enum.StrEnum):
    """What must be switched on for a metric to exist; a missing series of a present feature is zero."""

    ENGINE = "engine"
    HICACHE = "hicache"


class RankRule(enum.StrEnum):
    """How the series of several ranks become one figure."""

    ADD = "add"
    """Every series counts: one process counts it, or it is bytes, which each rank moves for itself."""
    ONE_RANK = "one_rank"
    """Tensor and pipeline ranks count the same tokens: one of them, added over data-parallel ranks."""
    FULLEST = "fullest"
    """A ratio: the fullest rank is the one that makes requests wait."""


V15 = "0.5.15"
V23 = "0.5.23"
BOTH = (V15, V23)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric of the engine. `versions` are those SGLang versions whose source was read."""

    name: str
    kind: Kind
    feature: Feature
    rank_rule: RankRule
    versions: tuple[str, ...]
    source: str
    """Who counts what, and when."""


PROMPT_TOKENS = MetricSpec(
    "sglang:prompt_tokens_total", Kind.COUNTER, Feature.ENGINE, RankRule.ADD, BOTH,
    "the tokenizer process, when a request has finished",
)  # fmt: skip
GENERATION_TOKENS = MetricSpec(
    "sglang:generation_tokens_total", Kind.COUNTER, Feature.ENGINE, RankRule.ADD, BOTH,
    "the tokenizer process, when a request has finished",
)  # fmt: skip
CACHED_TOKENS = MetricSpec(
    "sglang:cached_tokens_total", Kind.COUNTER, Feature.ENGINE, RankRule.ADD, BOTH,
    "the tokenizer process, when a request has finished; cache_source is device, host, storage_<backend>, or "
    "total where the request carried no details",
)  # fmt: skip
REQUESTS = MetricSpec(
    "sglang:num_requests_total", Kind.COUNTER, Feature.ENGINE, RankRule.ADD, BOTH,
    "the tokenizer process, when a request has finished; the engine's own warm-up request counts",
)  # fmt: skip
ABORTED = MetricSpec(
    "sglang:num_aborted_requests_total", Kind.COUNTER, Feature.ENGINE, RankRule.ADD, BOTH,
    "the tokenizer process, when a request is aborted",
)  # fmt: skip
RETRACTED = MetricSpec(
    "sglang:num_retracted_requests_total", Kind.COUNTER, Feature.ENGINE, RankRule.ONE_RANK, BOTH,
    "the scheduler, when a running request goes back to the queue for want of KV space",
)  # fmt: skip
EVICTED_TOKENS = MetricSpec(
    "sglang:evicted_tokens_total", Kind.COUNTER, Feature.ENGINE, RankRule.ONE_RANK, BOTH,
    "the radix cache of every rank: device slots freed, whether they were kept in host memory or dropped",
)  # fmt: skip
EVICTION_SECONDS = MetricSpec(
    "sglang:eviction_duration_seconds", Kind.HISTOGRAM, Feature.ENGINE, RankRule.ONE_RANK, BOTH,
    "the radix cache of every rank: time in which an eviction blocks the scheduler",
)  # fmt: skip
LOAD_BACK_TOKENS = MetricSpec(
    "sglang:load_back_tokens_total", Kind.COUNTER, Feature.HICACHE, RankRule.ONE_RANK, BOTH,
    "the radix cache of every rank: at the start of a reload in 0.5.15, at its end in 0.5.23",
)  # fmt: skip
LOAD_BACK_SECONDS = MetricSpec(
    "sglang:load_back_duration_seconds", Kind.HISTOGRAM, Feature.HICACHE, RankRule.ONE_RANK, BOTH,
    "the radix cache of every rank: bookkeeping before the copy in 0.5.15; the copies, merged, in 0.5.23",
)  # fmt: skip
LOAD_BACK_BYTES = MetricSpec(
    "sglang:load_back_bytes_total", Kind.COUNTER, Feature.HICACHE, RankRule.ADD, (V23,),
    "the radix cache of every rank, each for its own share of the KV heads",
)  # fmt: skip
BACKUP_TOKENS = MetricSpec(
    "sglang:hicache_backup_tokens_total", Kind.COUNTER, Feature.HICACHE, RankRule.ONE_RANK, (V23,),
    "the radix cache of every rank: tokens written to the host pool",
)  # fmt: skip
RUNNING_REQUESTS = MetricSpec(
    "sglang:num_running_reqs", Kind.GAUGE, Feature.ENGINE, RankRule.ONE_RANK, BOTH,
    "the scheduler, at each prefill batch, every few decode steps, and every 30 s when idle",
)  # fmt: skip
QUEUED_REQUESTS = MetricSpec(
    "sglang:num_queue_reqs", Kind.GAUGE, Feature.ENGINE, RankRule.ONE_RANK, BOTH,
    "the scheduler, as num_running_reqs",
)  # fmt: skip
THROUGHPUT = MetricSpec(
    "sglang:gen_throughput", Kind.GAUGE, Feature.ENGINE, RankRule.ONE_RANK, BOTH,
    "the scheduler, tokens/s over the last decode steps",
)  # fmt: skip
TOKEN_USAGE = MetricSpec(
    "sglang:token_usage", Kind.GAUGE, Feature.ENGINE, RankRule.FULLEST, BOTH,
    "the scheduler, share of the device KV pool in use, rounded to two digits",
)  # fmt: skip
DEVICE_POOL_TOKENS = MetricSpec(
    "sglang:max_total_num_tokens", Kind.GAUGE, Feature.ENGINE, RankRule.ONE_RANK, BOTH,
    "the scheduler, once at start: size of the device KV pool",
)  # fmt: skip
HOST_USED_TOKENS = MetricSpec(
    "sglang:hicache_host_used_tokens", Kind.GAUGE, Feature.HICACHE, RankRule.ONE_RANK, BOTH,
    "the scheduler, after batches only: stale while the engine is idle",
)  # fmt: skip
HOST_TOTAL_TOKENS = MetricSpec(
    "sglang:hicache_host_total_tokens", Kind.GAUGE, Feature.HICACHE, RankRule.ONE_RANK, BOTH,
    "the scheduler: size of the host KV pool",
)  # fmt: skip
KV_CACHE_MEMORY = MetricSpec(
    "sglang:kv_cache_memory_usage_gb", Kind.GAUGE, Feature.ENGINE, RankRule.ADD, (V23,),
    "the scheduler, once at start; tells 0.5.23 from 0.5.15 before the first request",
)  # fmt: skip

METRICS: tuple[MetricSpec, ...] = (
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    CACHED_TOKENS,
    REQUESTS,
    ABORTED,
    RETRACTED,
    EVICTED_TOKENS,
    EVICTION_SECONDS,
    LOAD_BACK_TOKENS,
    LOAD_BACK_SECONDS,
    LOAD_BACK_BYTES,
    BACKUP_TOKENS,
    RUNNING_REQUESTS,
    QUEUED_REQUESTS,
    THROUGHPUT,
    TOKEN_USAGE,
    DEVICE_POOL_TOKENS,
    HOST_USED_TOKENS,
    HOST_TOTAL_TOKENS,
    KV_CACHE_MEMORY,
)
"""Every metric that is read. `sglang:cache_hit_rate` is left out on purpose: it holds the last batch only."""
