"""The metrics of a nightly tuning job: one file a night, written for node_exporter's textfile collector.

The label `job_name` names what is tuned each night, such as one model on one kind of GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.metrics_core import InfoMetricFamily, Metric

from harness.telemetry.exposition import Exposition, gauge

OUTCOMES = ("good", "regression", "no data", "failed", "skipped")
"""How a night can end. `no data` is not a pass: nothing was measured that could be compared."""
CAUSES = ("engine version", "driver", "workload", "conditions", "noise")
"""What a regression can come from, as far as the conditions of both nights tell; noise is none."""


@dataclass(frozen=True)
class Measured:
    """The TTFT P99 of one setting in one night, with its 95 % interval, and what it leaves free."""

    setting: str
    ttft_p99_s: float
    low_s: float | None = None
    high_s: float | None = None
    headroom_bytes: Mapping[str, int] = field(default_factory=dict)
    """By kind: device, host, cgroup."""
    cached_ratio: float | None = None


@dataclass(frozen=True)
class Night:
    """What one night has found. None is what is not known."""

    outcome: str
    """One of OUTCOMES."""
    ended_at_s: float
    """Since the epoch."""
    duration_s: float
    environment: Mapping[str, str]
    """Conditions of the night: engine version, driver, GPU, model, scenario."""
    winner: Measured | None = None
    baseline: Measured | None = None
    """HiCache off, at SGLang's defaults."""
    production: Measured | None = None
    """The setting that runs in production now."""
    change_ratio: float | None = None
    """How the production setting's P99 changed since the last good night, of equal conditions if there is one: 0.2 is
    20 % slower."""
    cause: str | None = None
    """One of CAUSES, when it is a regression; `noise` when it only looked like one."""


class NightlyExporter(Exposition):
    """The metrics of the latest night of one job."""

    def __init__(self, job_name: str, night: Night) -> None:
        super().__init__()
        self._job, self._night = job_name, night

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its help; one whose value is unknown has no sample."""
        job, night, by_job = (self._job,), self._night, ("job_name",)
        yield gauge(
            "hicache_tune_nightly_outcome_state",
            "1 for how the latest night ended, 0 for how it did not.",
            ("job_name", "outcome"),
            [((self._job, outcome), float(outcome == night.outcome)) for outcome in OUTCOMES],
        )
        yield gauge(
            "hicache_tune_nightly_cause_state",
            "1 for what the latest night's regression comes from.",
            ("job_name", "cause"),
            [((self._job, cause), float(cause == night.cause)) for cause in CAUSES],
        )
        for name, text, value in (
            ("last_run_timestamp_seconds", "When the latest night ended.", night.ended_at_s),
            ("duration_seconds", "How long the latest night took.", night.duration_s),
            (
                "change_ratio",
                "Change of the production setting's TTFT P99 since the last good night; 0.2 is 20 % slower.",
                night.change_ratio,
            ),
        ):
            yield gauge(f"hicache_tune_nightly_{name}", text, by_job, [(job, value)])
        environment = InfoMetricFamily(
            "hicache_tune_nightly_environment", "Conditions of the latest night.", labels=by_job
        )
        environment.add_metric(job, dict(night.environment))
        yield environment
        yield from self._of_settings()

    def _of_settings(self) -> Iterator[Metric]:
        night, by_role = self._night, ("job_name", "role")
        found = [
            ((self._job, role), measured)
            for role, measured in (
                ("winner", night.winner),
                ("baseline", night.baseline),
                ("production", night.production),
            )
            if measured is not None
        ]
        settings = InfoMetricFamily("hicache_tune_nightly_setting", "Which setting has a role.", labels=by_role)
        for key, measured in found:
            settings.add_metric(key, {"setting": measured.setting})
        yield settings
        for name, text, values in (
            ("ttft_p99_seconds", "TTFT P99 of the steady window.", [of.ttft_p99_s for _, of in found]),
            ("ttft_p99_low_seconds", "Lower end of its 95 % interval.", [of.low_s for _, of in found]),
            ("ttft_p99_high_seconds", "Upper end of its 95 % interval.", [of.high_s for _, of in found]),
            (
                "cached_ratio",
                "Share of the prompt tokens that came from a cache.",
                [of.cached_ratio for _, of in found],
            ),
        ):
            samples = [(key, value) for (key, _), value in zip(found, values, strict=True)]
            yield gauge(f"hicache_tune_nightly_{name}", text, by_role, samples)
        yield gauge(
            "hicache_tune_nightly_headroom_bytes",
            "Least memory seen free under load.",
            (*by_role, "kind"),
            [((*key, kind), free) for key, of in found for kind, free in of.headroom_bytes.items()],
        )
