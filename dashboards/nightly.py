"""Nightly: winner, baseline and production over the nights; regressions; changes of the conditions."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.panels import Board, PanelBuilder, Query, lines, number, rows

JOB = 'job_name="$job_name"'


def dashboard() -> Dashboard:
    """Build it."""
    board = Board(
        "nightly",
        "hicache-tune: nightly",
        "A nightly tuning job: what it found each night, regressions, and changes of the conditions.",
        since="now-30d",
        refresh="15m",
    )
    board.variable("job_name", "Job", "label_values(hicache_tune_nightly_last_run_timestamp_seconds, job_name)")
    environment = f"hicache_tune_nightly_environment_info{{{JOB}}}"
    board.annotation("Conditions changed", f"{environment} unless {environment} offset 1d", "orange")
    board.annotation("Regression", f'hicache_tune_nightly_outcome_state{{{JOB}, outcome="regression"}} == 1', "red")
    return board.row("Last night", *_last_night()).row("Over the nights", *_nights()).build()


def _last_night() -> list[PanelBuilder]:
    return [
        number(
            "Since the last night",
            "Past 26 h an alert fires.",
            "s",
            Query(f"time() - hicache_tune_nightly_last_run_timestamp_seconds{{{JOB}}}"),
            worse_above=26 * 3600,
        ),
        number(
            "Regression",
            "Whether the production setting got slower than on the last good night, measured twice.",
            "none",
            Query(f'hicache_tune_nightly_outcome_state{{{JOB}, outcome="regression"}}'),
            worse_above=1,
            words={"0": "no", "1": "yes"},
        ),
        number(
            "Change of P99",
            "Of the production setting since the last good night, of equal conditions if there is one; 20 % is slower.",
            "percentunit",
            Query(f"hicache_tune_nightly_change_ratio{{{JOB}}}"),
            worse_above=0.1,
        ),
        number(
            "It took",
            "How long the night's job ran.",
            "s",
            Query(f"hicache_tune_nightly_duration_seconds{{{JOB}}}"),
        ),
        rows(
            "Settings",
            "Winner of the night, production now, and the baseline without HiCache.",
            Query(f"hicache_tune_nightly_setting_info{{{JOB}}}"),
            ("role", "setting"),
            width=8,
        ),
        rows(
            "Conditions",
            "What differs from the good night is named as the likely cause of a change.",
            Query(f"hicache_tune_nightly_environment_info{{{JOB}}}"),
            ("gpu", "driver", "sglang_version", "model", "scenario"),
            width=24,
        ),
    ]


def _nights() -> list[PanelBuilder]:
    return [
        lines(
            "TTFT P99",
            "Of the steady window.",
            "s",
            Query(f"hicache_tune_nightly_ttft_p99_seconds{{{JOB}}}", "{{role}}"),
            steps=True,
        ),
        lines(
            "TTFT P99 of production, with its 95 % interval",
            "Intervals that overlap are no change.",
            "s",
            Query(f'hicache_tune_nightly_ttft_p99_low_seconds{{{JOB}, role="production"}}', "low"),
            Query(f'hicache_tune_nightly_ttft_p99_seconds{{{JOB}, role="production"}}', "P99"),
            Query(f'hicache_tune_nightly_ttft_p99_high_seconds{{{JOB}, role="production"}}', "high"),
            steps=True,
        ),
        lines(
            "Outcome",
            "No data is not a pass: nothing was measured that could be compared.",
            "short",
            Query(f"hicache_tune_nightly_outcome_state{{{JOB}}} == 1", "{{outcome}}"),
            steps=True,
        ),
        lines(
            "Cause of a regression",
            "As far as the conditions of both nights tell; noise is no regression, as a repeat did not show it.",
            "short",
            Query(f"hicache_tune_nightly_cause_state{{{JOB}}} == 1", "{{cause}}"),
            steps=True,
        ),
        lines(
            "Headroom",
            "Least memory seen free under load.",
            "bytes",
            Query(f"hicache_tune_nightly_headroom_bytes{{{JOB}}}", "{{role}}, {{kind}}"),
            steps=True,
        ),
        lines(
            "Hit rate",
            "Share of the prompt tokens that came from a cache.",
            "percentunit",
            Query(f"hicache_tune_nightly_cached_ratio{{{JOB}}}", "{{role}}"),
            steps=True,
        ),
    ]
