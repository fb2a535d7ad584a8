"""Every metric name that a dashboard or a rule may use."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric

from harness.telemetry import Exporter
from harness.telemetry.catalog import METRICS, Kind
from harness.telemetry.nightly_exporter import Night, NightlyExporter

SGLANG_HISTOGRAMS = frozenset(
    (
        "sglang:e2e_request_latency_seconds",
        "sglang:generation_tokens_histogram",
        "sglang:hicache_backup_duration_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:per_stage_req_latency_seconds",
        "sglang:prompt_tokens_histogram",
        "sglang:queue_time_seconds",
        "sglang:time_to_first_token_seconds",
        "sglang:uncached_prompt_tokens_histogram",
    )
)
SGLANG_MORE = frozenset(
    (
        "sglang:backuped_tokens_total",
        "sglang:context_len",
        "sglang:full_token_usage",
        "sglang:hicache_backup_bytes_total",
        "sglang:hicache_dropped_tokens_total",
        "sglang:http_requests_active",
        "sglang:http_requests_total",
        "sglang:http_responses_total",
        "sglang:is_cuda_graph",
        "sglang:kv_available_tokens",
        "sglang:kv_evictable_tokens",
        "sglang:kv_used_tokens",
        "sglang:num_grammar_queue_reqs",
        "sglang:num_pages",
        "sglang:num_paused_reqs",
        "sglang:num_retracted_input_tokens_total",
        "sglang:num_retracted_output_tokens_total",
        "sglang:num_retracted_reqs",
        "sglang:num_used_tokens",
        "sglang:page_size",
        "sglang:prefetched_tokens_total",
        "sglang:process_cpu_seconds_total",
        "sglang:realtime_tokens_total",
        "sglang:startup_available_gpu_memory_gb",
        "sglang:swa_token_usage",
    )
)
"""What SGLang 0.5.15 or 0.5.23 has beside the metrics that the harness reads, in both sets. `cache_hit_rate` is left
out on purpose: it holds the last batch only, and a panel of it would mislead."""
OTHERS = frozenset(
    (
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "node_memory_MemAvailable_bytes",
        "node_memory_MemTotal_bytes",
        "up",
    )
)
"""Of Prometheus itself, of node_exporter and of dcgm-exporter."""
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "info": ("_info",)}


def known_metrics() -> frozenset[str]:
    """Return the name of every series that may be asked for; recording rules of ours are not among them."""
    nobody = Night(outcome="no data", ended_at_s=0, duration_s=0, environment={})
    ours = set(_series(Exporter("study").collect())) | set(_series(NightlyExporter("job", nobody).collect()))
    read = {spec.name for spec in METRICS if spec.kind is not Kind.HISTOGRAM}
    histograms = {spec.name for spec in METRICS if spec.kind is Kind.HISTOGRAM} | SGLANG_HISTOGRAMS
    parts = {name + suffix for name in histograms for suffix in SUFFIXES["histogram"]}
    return frozenset(ours | read | parts | SGLANG_MORE | OTHERS)


def _series(families: Iterable[Metric]) -> Iterable[str]:
    for family in families:
        for suffix in SUFFIXES.get(family.type, ("",)):
            yield family.name + suffix
