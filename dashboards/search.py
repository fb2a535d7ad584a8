"""Search: how far a search is, what it has found, and what it costs."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.panels import Board, PanelBuilder, Query, lines, number, rows

STUDY = 'study="$study"'


def dashboard() -> Dashboard:
    """Build it."""
    board = Board(
        "search",
        "hicache-tune: search",
        "A search that runs: progress, the best setting so far, memory, reloads, failures.",
        since="now-1h",
        refresh="5s",
    )
    board.variable("study", "Study", "label_values(hicache_tune_study_trials_planned, study)")
    board.row("Progress", *_progress()).row("Time to first token", *_ttft())
    return board.row("Memory and cache", *_memory()).row("Failures and time", *_failures()).build()


def _progress() -> list[PanelBuilder]:
    return [
        number(
            "Settings tried",
            "Settings that were tried, confirmation left out.",
            "short",
            Query(f"hicache_tune_study_trials_done{{{STUDY}}}"),
        ),
        number(
            "Settings planned",
            "Settings that the study will try.",
            "short",
            Query(f"hicache_tune_study_trials_planned{{{STUDY}}}"),
        ),
        number(
            "About left",
            "Estimated from the trials so far, confirmation included.",
            "s",
            Query(f"hicache_tune_study_remaining_seconds{{{STUDY}}}"),
        ),
        number(
            "Since it last got on",
            "Time since a step began, a request was answered or a trial ended. Past 30 min an alert fires.",
            "s",
            Query(f"time() - hicache_tune_last_progress_timestamp_seconds{{{STUDY}}}"),
            worse_above=1800,
        ),
        number(
            "Best TTFT P99",
            "Lowest P99 of a setting that keeps every constraint; the best of many is biased until it is confirmed.",
            "s",
            Query(f'hicache_tune_trial_ttft_seconds{{{STUDY}, role="best", quantile="0.99"}}'),
        ),
        number(
            "Gain against HiCache off",
            "How much lower the best P99 is than the baseline's without HiCache. The verdict needs the confirmation.",
            "percentunit",
            Query(
                f'1 - hicache_tune_trial_ttft_seconds{{{STUDY}, role="best", quantile="0.99"}} / ignoring(role) '
                f'hicache_tune_trial_ttft_seconds{{{STUDY}, role="off", quantile="0.99"}}'
            ),
        ),
        rows(
            "Current setting",
            "The trial that runs; empty between trials.",
            Query(f"hicache_tune_current_trial_info{{{STUDY}}}"),
            ("trial", "setting"),
            width=8,
        ),
        rows(
            "Current step",
            "Preflight, launch, ready, warm-up, load, drain, stop, hygiene.",
            Query(f"hicache_tune_current_step_info{{{STUDY}}}"),
            ("step",),
            width=4,
        ),
        rows(
            "Settings so far",
            "Which trial is the last, the best, and the baselines without and with HiCache.",
            Query(f"hicache_tune_trial_info{{{STUDY}}}"),
            ("role", "trial", "setting", "outcome"),
        ),
        lines(
            "Load of the current trial",
            "Requests of counted sessions.",
            "short",
            Query(f"hicache_tune_current_trial_requests{{{STUDY}}}", "{{state}}"),
            width=24,
        ),
    ]


def _ttft() -> list[PanelBuilder]:
    return [
        lines(
            "P99: last, best and baselines",
            "TTFT P99 of the steady window, from raw records.",
            "s",
            Query(f'hicache_tune_trial_ttft_seconds{{{STUDY}, quantile="0.99"}}', "{{role}}"),
            steps=True,
        ),
        lines(
            "Quantiles of the last trial",
            "TTFT of the steady window, from raw records.",
            "s",
            Query(f'hicache_tune_trial_ttft_seconds{{{STUDY}, role="last"}}', "P{{quantile}}"),
            steps=True,
        ),
        lines(
            "Quantiles of the best trial",
            "TTFT of the steady window, from raw records.",
            "s",
            Query(f'hicache_tune_trial_ttft_seconds{{{STUDY}, role="best"}}', "P{{quantile}}"),
            steps=True,
        ),
        lines(
            "Median now",
            "Of the latest replies of the load that runs.",
            "s",
            Query(f"hicache_tune_current_trial_ttft_p50_seconds{{{STUDY}}}", "P50"),
        ),
    ]


def _memory() -> list[PanelBuilder]:
    trial = f'{STUDY}, role="last"'
    return [
        lines(
            "Headroom on the host",
            "Least memory seen free under load: of the host, and under the tightest cgroup limit.",
            "bytes",
            Query(f'hicache_tune_trial_headroom_bytes{{{STUDY}, kind!="device"}}', "{{role}}, {{kind}}"),
            steps=True,
        ),
        lines(
            "Headroom on the device",
            "Least free memory of the fullest GPU under load; unknown without NVML.",
            "bytes",
            Query(f'hicache_tune_trial_headroom_bytes{{{STUDY}, kind="device"}}', "{{role}}"),
            steps=True,
        ),
        lines(
            "Headroom at twice the concurrency",
            "A guess from how memory grew with the running requests; below zero there would be no room.",
            "bytes",
            Query(f"hicache_tune_trial_headroom_doubled_bytes{{{STUDY}}}", "{{role}}, {{kind}}"),
            steps=True,
            signed=True,
        ),
        lines(
            "Where prompt tokens came from",
            "Share of the prompt tokens that each tier had; the rest was computed.",
            "percentunit",
            Query(f"hicache_tune_trial_cached_ratio{{{trial}}}", "{{tier}}"),
            stacked=True,
            steps=True,
        ),
        lines(
            "Tokens moved",
            "In the last trial: reloaded from host or storage, evicted from the device, and written to the host, which "
            "SGLang counts from 0.5.23 on.",
            "short",
            Query(f"hicache_tune_trial_reload_tokens{{{trial}}}", "reloaded"),
            Query(f"hicache_tune_trial_evicted_tokens{{{trial}}}", "evicted"),
            Query(f"hicache_tune_trial_backup_tokens{{{trial}}}", "written to the host"),
            steps=True,
        ),
        lines(
            "Reload against compute, for each 1,000 tokens",
            "What users wait for 1,000 tokens more, reloaded or computed, fitted on the client's records, with 95 % "
            "intervals. Where they overlap, nothing is known. Needs 30 requests of each sort.",
            "s",
            Query(f"1000 * hicache_tune_trial_reload_seconds_per_token{{{trial}}}", "reloaded, {{bound}}"),
            Query(f"1000 * hicache_tune_trial_compute_seconds_per_token{{{trial}}}", "computed, {{bound}}"),
            steps=True,
            signed=True,
        ),
        lines(
            "What each reload costs, whatever its length",
            "Fitted as the panel before it.",
            "s",
            Query(f"hicache_tune_trial_reload_fixed_seconds{{{trial}}}", "{{bound}}"),
            steps=True,
            signed=True,
        ),
        lines(
            "Break-even length of a reload",
            "Reloading more tokens than this is faster than computing them; unknown where no such length is sure.",
            "short",
            Query(f"hicache_tune_trial_reload_break_even_tokens{{{trial}}}", "tokens"),
            steps=True,
        ),
        lines(
            "Evictions that blocked the scheduler",
            "Time of the last trial's load in which every request waited for an eviction.",
            "s",
            Query(f"hicache_tune_trial_eviction_seconds{{{trial}}}", "blocked"),
            steps=True,
        ),
    ]


def _failures() -> list[PanelBuilder]:
    return [
        lines(
            "Trials by outcome",
            "Not sustainable: the load did not reach a steady state. Invalid: the measurement was at fault.",
            "short",
            Query(f"sum by (outcome) (hicache_tune_trials_total{{{STUDY}}})", "{{outcome}}"),
            stacked=True,
            steps=True,
        ),
        lines(
            "Failures by class",
            "Trials whose engine refused, crashed, hung or ran out of memory.",
            "short",
            Query(f"hicache_tune_trial_failures_total{{{STUDY}}}", "{{failure}}"),
            stacked=True,
            steps=True,
        ),
        lines(
            "Requests by how they ended",
            "Counted requests of all trials. Cut: unanswered when the load ended.",
            "short",
            Query(f"hicache_tune_requests_total{{{STUDY}}}", "{{status}}"),
            stacked=True,
            steps=True,
        ),
        lines(
            "Where the time of a trial goes",
            "Steps of the last trial.",
            "s",
            Query(f'hicache_tune_trial_step_seconds{{{STUDY}, role="last"}}', "{{step}}"),
            stacked=True,
            steps=True,
        ),
    ]
