"""Compare: two studies side by side, of now or of any time that Prometheus remembers."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.panels import Board, PanelBuilder, Query, lines, number, rows

BOTH = 'study=~"$study_a|$study_b"'
GUARDED = "scenario, model, sglang_version, gpu, driver, device"
"""Conditions under which two studies may be compared."""


def dashboard() -> Dashboard:
    """Build it."""
    board = Board(
        "compare",
        "hicache-tune: compare",
        "Two studies side by side. The range must hold the end of both; metrics.prom brings back an old one.",
        since="now-7d",
        refresh="1m",
    )
    for name, label in (("study_a", "Study A"), ("study_b", "Study B")):
        board.variable(name, label, "label_values(hicache_tune_trial_ttft_seconds, study)")
    return board.row("What is compared", *_conditions()).row("What was found", *_found()).build()


def latest(name: str, labels: str = "") -> str:
    """Return the last value of each series within the range; a study that has ended has none now."""
    return f"last_over_time({name}{{{BOTH}{', ' if labels else ''}{labels}}}[$__range])"


def _conditions() -> list[PanelBuilder]:
    return [
        number(
            "Conditions",
            "Whether GPU, driver, SGLang, model and scenario are equal. If they are not, no difference below says "
            "anything of the settings.",
            "none",
            Query(f"count(count by ({GUARDED}) ({latest('hicache_tune_study_info')}))"),
            worse_above=2,
            words={"1": "equal", "2": "differ"},
        ),
        number(
            "Best P99, B against A",
            "How much lower the best P99 of study B is.",
            "percentunit",
            Query(
                '1 - max(last_over_time(hicache_tune_trial_ttft_seconds{study="$study_b", role="best", '
                'quantile="0.99"}[$__range])) / max(last_over_time(hicache_tune_trial_ttft_seconds{study="$study_a", '
                'role="best", quantile="0.99"}[$__range]))'
            ),
        ),
        rows(
            "Studies",
            "Conditions of both.",
            Query(latest("hicache_tune_study_info")),
            ("study", "scenario", "model", "sglang_version", "gpu", "driver", "tool_version"),
            width=16,
        ),
        rows(
            "Settings",
            "Best settings and baselines over the range; a search lists each setting that was the best for a while.",
            Query(latest("hicache_tune_trial_info", 'role!="last"')),
            ("study", "role", "trial", "setting", "outcome"),
            width=24,
        ),
    ]


def _found() -> list[PanelBuilder]:
    return [
        lines(
            "TTFT P99 of best and baselines",
            "Of the steady window, from raw records.",
            "s",
            Query(latest("hicache_tune_trial_ttft_seconds", 'quantile="0.99", role!="last"'), "{{study}}: {{role}}"),
        ),
        lines(
            "TTFT quantiles of the best",
            "Of the steady window, from raw records.",
            "s",
            Query(latest("hicache_tune_trial_ttft_seconds", 'role="best"'), "{{study}}: P{{quantile}}"),
        ),
        lines(
            "Headroom of the best",
            "Least memory seen free under load.",
            "bytes",
            Query(latest("hicache_tune_trial_headroom_bytes", 'role="best"'), "{{study}}: {{kind}}"),
        ),
        lines(
            "Hit rate of the best, by tier",
            "Share of the prompt tokens that each tier had.",
            "percentunit",
            Query(latest("hicache_tune_trial_cached_ratio", 'role="best"'), "{{study}}: {{tier}}"),
        ),
        lines(
            "Tokens reloaded by the best",
            "Copied from host or storage back to the device over its load.",
            "short",
            Query(latest("hicache_tune_trial_reload_tokens", 'role="best"'), "{{study}}"),
        ),
        lines(
            "Trials by outcome",
            "How the trials of both ended.",
            "short",
            Query(f"sum by (study, outcome) ({latest('hicache_tune_trials_total')})", "{{study}}: {{outcome}}"),
        ),
    ]
