"""Engine: SGLang's own metrics, of 0.5.15 and 0.5.23, of an engine in production or under a search.

Which ranks count: the scheduler's figures and those of the caches are taken from the first tensor and pipeline rank
and added over data-parallel ranks; bytes are added over all (`harness.telemetry.catalog`).
"""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.panels import Board, PanelBuilder, Query, lines

ALL = 'instance=~"$instance"'
ONE = f'{ALL}, tp_rank=~"0|", pp_rank=~"0|"'
"""Of one tensor and pipeline rank; 0.5.15 has no rank labels on its cache counters."""
WINDOW = "[$__rate_interval]"


def dashboard() -> Dashboard:
    """Build it."""
    board = Board(
        "engine",
        "hicache-tune: engine",
        "SGLang's own metrics: latency, load, the KV pools, what moves between them, and the machine's memory.",
        since="now-1h",
        refresh="10s",
    )
    board.variable("instance", "Engine", "label_values(sglang:num_running_reqs, instance)", many=True)
    board.row("Latency", *_latency()).row("Load", *_load()).row("Cache", *_cache())
    return board.row("Traffic between device and host", *_traffic()).row("Machine", *_machine()).build()


def rate(name: str, *, by: str = "instance", only: str = ALL) -> str:
    """Return the growth of a counter in a second."""
    return f"sum by ({by}) (rate({name}{{{only}}}{WINDOW}))"


def total(name: str, *, only: str = ONE) -> str:
    """Return a gauge, added over data-parallel ranks."""
    return f"sum by (instance) ({name}{{{only}}})"


def quantile(q: float, name: str) -> str:
    """Return a quantile of a histogram."""
    return f"histogram_quantile({q:g}, {rate(f'{name}_bucket', by='le, instance')})"


def _quantiles(name: str) -> tuple[Query, ...]:
    return tuple(Query(quantile(q, name), f"P{q * 100:.0f} {{{{instance}}}}") for q in (0.5, 0.9, 0.99))


def _latency() -> list[PanelBuilder]:
    ttft = "sglang:time_to_first_token_seconds"
    return [
        lines(
            "TTFT",
            "From SGLang's histogram, whose first bucket ends at 100 ms: good for trends, never for a verdict. A "
            "search measures TTFT in the client.",
            "s",
            *_quantiles(ttft),
            Query(f"{rate(f'{ttft}_sum')} / {rate(f'{ttft}_count')}", "mean {{instance}}"),
        ),
        lines(
            "Time between tokens", "From SGLang's histogram.", "s", *_quantiles("sglang:inter_token_latency_seconds")
        ),
        lines("Whole request", "From SGLang's histogram.", "s", *_quantiles("sglang:e2e_request_latency_seconds")),
        lines("Time in the queue", "From SGLang's histogram.", "s", *_quantiles("sglang:queue_time_seconds")),
    ]


def _load() -> list[PanelBuilder]:
    return [
        lines(
            "Requests in the engine",
            "Written at each prefill batch, every few decode steps, and every 30 s when idle.",
            "short",
            Query(total("sglang:num_running_reqs"), "running {{instance}}"),
            Query(total("sglang:num_queue_reqs"), "queued {{instance}}"),
        ),
        lines(
            "Requests ended",
            "Aborted and retracted ones beside; a retracted request goes back to the queue for want of KV space.",
            "reqps",
            Query(rate("sglang:num_requests_total"), "ended {{instance}}"),
            Query(rate("sglang:num_aborted_requests_total"), "aborted {{instance}}"),
            Query(rate("sglang:num_retracted_requests_total", only=ONE), "retracted {{instance}}"),
        ),
        lines(
            "Tokens",
            "Counted when a request has ended, so long answers come in lumps.",
            "short",
            Query(rate("sglang:prompt_tokens_total"), "prompt {{instance}}"),
            Query(rate("sglang:generation_tokens_total"), "generated {{instance}}"),
        ),
        lines(
            "Restarts",
            "Times that the counters started again: the engine came up anew, with cold caches. A search does so for "
            "every trial.",
            "short",
            Query(f"sum by (instance) (resets(sglang:prompt_tokens_total{{{ALL}}}[$__range]))", "{{instance}}"),
        ),
    ]


def _cache() -> list[PanelBuilder]:
    prompts = rate("sglang:prompt_tokens_total")
    return [
        lines(
            "Hit rate by tier",
            "Cached tokens over prompt tokens, both counted when a request ends. A tier has no series before its first "
            "hit. SGLang's own cache_hit_rate gauge is not used: it holds the last batch only.",
            "percentunit",
            Query(
                f"{rate('sglang:cached_tokens_total', by='instance, cache_source')} / on (instance) group_left () "
                f"({prompts} > 0)",
                "{{cache_source}} {{instance}}",
            ),
            stacked=True,
        ),
        lines(
            "Device KV pool in use",
            "The fullest rank is the one that makes requests wait. Cached but unused KV does not count as used.",
            "percentunit",
            Query(f"max by (instance) (sglang:token_usage{{{ALL}}})", "{{instance}}"),
        ),
        lines(
            "Host KV pool",
            "Added over data-parallel ranks. Written after batches only: stale while the engine is idle.",
            "short",
            Query(total("sglang:hicache_host_used_tokens"), "used {{instance}}"),
            Query(total("sglang:hicache_host_total_tokens"), "size {{instance}}"),
            Query(total("sglang:max_total_num_tokens"), "device pool {{instance}}"),
        ),
        lines(
            "Host KV pool in use",
            "From the sums over ranks, not the mean of their ratios. A pool that never fills is larger than it pays.",
            "percentunit",
            Query(
                f"{total('sglang:hicache_host_used_tokens')} / {total('sglang:hicache_host_total_tokens')}",
                "{{instance}}",
            ),
        ),
    ]


def _traffic() -> list[PanelBuilder]:
    copies, reload_s = "sglang:load_back_bytes_total", "sglang:load_back_duration_seconds"
    return [
        lines(
            "Tokens evicted and reloaded",
            "Evicted: device slots freed, kept in host memory or dropped. In 0.5.15 the counters of all "
            "tensor-parallel ranks are one series: divide by their number.",
            "short",
            Query(rate("sglang:evicted_tokens_total", only=ONE), "evicted {{instance}}"),
            Query(rate("sglang:load_back_tokens_total", only=f'{ONE}, pool=~"kv|"'), "reloaded {{instance}}"),
        ),
        lines(
            "Evictions that block the scheduler",
            "Share of the time in which every request waits for an eviction. With write_back the copy is in it.",
            "percentunit",
            Query(rate("sglang:eviction_duration_seconds_sum", only=ONE), "{{instance}}"),
        ),
        lines(
            "Reload operations",
            "0.5.23: merged copies. 0.5.15: requests that reloaded; its load_back_duration_seconds times bookkeeping "
            "and is not shown.",
            "ops",
            Query(rate(f"{reload_s}_count", only=ONE), "{{instance}}"),
            width=8,
        ),
        lines(
            "Bandwidth of reloads (0.5.23)",
            "Bytes over the time in which copies ran, added over ranks. 0.5.15 counts neither.",
            "Bps",
            Query(f"{rate(copies)} / ({rate(f'{reload_s}_sum', only=ONE)} > 0)", "{{instance}}"),
            width=8,
        ),
        lines(
            "Written to the host (0.5.23)",
            "Tokens backed up to the host pool, and dropped because they had no place there.",
            "short",
            Query(rate("sglang:hicache_backup_tokens_total", only=f'{ONE}, pool=~"kv|"'), "written {{instance}}"),
            Query(rate("sglang:hicache_dropped_tokens_total", by="instance, reason", only=ONE), "dropped: {{reason}}"),
            width=8,
        ),
    ]


def _machine() -> list[PanelBuilder]:
    return [
        lines(
            "Host memory",
            "From node_exporter. 20 % must stay free: the host pool is pinned and cannot be swapped.",
            "bytes",
            Query("node_memory_MemAvailable_bytes", "available {{instance}}"),
            Query("node_memory_MemTotal_bytes", "total {{instance}}"),
            width=8,
        ),
        lines(
            "Free GPU memory",
            "From dcgm-exporter, which counts in MiB.",
            "mbytes",
            Query("DCGM_FI_DEV_FB_FREE", "GPU {{gpu}} {{instance}}"),
            width=8,
        ),
        lines(
            "PCIe traffic",
            "From dcgm-exporter (profiling metrics): host-to-device copies are received by the GPU.",
            "Bps",
            Query("DCGM_FI_PROF_PCIE_RX_BYTES", "to GPU {{gpu}}"),
            Query("DCGM_FI_PROF_PCIE_TX_BYTES", "from GPU {{gpu}}"),
            width=8,
        ),
    ]
