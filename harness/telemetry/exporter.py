"""Our own metrics of a search that runs, for Prometheus: live over HTTP, or as a file for node_exporter.

Every metric has the label `study`, so that a series exists only once its value is known: an unlabelled gauge
would claim a best TTFT of zero before the first trial.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, start_http_server, write_to_textfile
from prometheus_client.metrics_core import Metric

from harness.errors import ConfigError, StoreError
from harness.telemetry.sampler import Headroom


class Exporter:
    """The metrics of one study, in a registry of their own."""

    def __init__(self, study: str) -> None:
        self._study = study
        self._registry = registry = CollectorRegistry()
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        by_study = ["study"]
        self._trials = Counter(
            "hicache_tune_trials", "Trials ended, by outcome.", ["study", "outcome"], registry=registry
        )
        self._planned = Gauge(
            "hicache_tune_study_trials_planned",
            "Trials that the study will run.",
            by_study,
            registry=registry,
        )
        self._done = Gauge(
            "hicache_tune_study_trials_done", "Trials of the study that ended.", by_study, registry=registry
        )
        self._best = Gauge(
            "hicache_tune_best_ttft_p99_seconds",
            "Lowest TTFT P99 of a feasible setting.",
            by_study,
            registry=registry,
        )
        self._current = Info("hicache_tune_current_trial", "The trial that runs.", by_study, registry=registry)
        self._ttft = Gauge(
            "hicache_tune_last_trial_ttft_seconds",
            "TTFT of the last trial.",
            ["study", "quantile"],
            registry=registry,
        )
        self._headroom = Gauge(
            "hicache_tune_last_trial_headroom_bytes",
            "Least memory seen free under the load of the last trial.",
            ["study", "kind"],
            registry=registry,
        )
        self._reload = Gauge(
            "hicache_tune_last_trial_reload_tokens",
            "Tokens copied from host or storage back to the device in the last trial.",
            by_study,
            registry=registry,
        )

    def families(self) -> Iterable[Metric]:
        """List the metrics with their help, for the manual."""
        return self._registry.collect()

    def study_started(self, *, planned_trials: int, done_trials: int = 0) -> None:
        """Say how many trials the study will run, and how many of them an earlier run has done."""
        self._planned.labels(self._study).set(planned_trials)
        self._done.labels(self._study).set(done_trials)

    def trial_started(self, number: int, setting: str) -> None:
        """Say which trial runs; `setting` is its short name."""
        self._current.labels(self._study).info({"trial": str(number), "setting": setting})

    def trial_finished(
        self,
        *,
        outcome: str,
        ttft_quantiles_s: Mapping[float, float],
        headroom: Headroom | None,
        reload_tokens: int | None,
        best_ttft_p99_s: float | None,
    ) -> None:
        """Show the trial that has just ended; what is unknown has no series."""
        study = self._study
        self._current.clear()
        self._trials.labels(study, outcome).inc()
        self._done.labels(study).inc()
        self._ttft.clear()
        for quantile, seconds in ttft_quantiles_s.items():
            self._ttft.labels(study, f"{quantile:g}").set(seconds)
        self._headroom.clear()
        for kind, free_bytes in _kinds(headroom):
            self._headroom.labels(study, kind).set(free_bytes)
        self._reload.clear()
        if reload_tokens is not None:
            self._reload.labels(study).set(reload_tokens)
        if best_ttft_p99_s is not None:
            self._best.labels(study).set(best_ttft_p99_s)

    def start(self, port: int, host: str = "127.0.0.1") -> int:
        """Serve over HTTP and return the port, a free one for 0; raise ConfigError when it is taken."""
        try:
            self._server = start_http_server(port, addr=host, registry=self._registry)
        except OSError as problem:
            raise ConfigError(
                f"the metrics exporter cannot listen on {host}:{port} ({problem.strerror}); choose another port"
            ) from None
        return self._server[0].server_port

    def write_textfile(self, path: Path) -> None:
        """Write the text format, whole or not at all; raise StoreError when that is impossible."""
        try:
            write_to_textfile(str(path), self._registry)
        except OSError as problem:
            raise StoreError(
                f"{path}: the metrics cannot be written ({problem.strerror}); make its folder or name another"
            ) from None

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _kinds(headroom: Headroom | None) -> list[tuple[str, int]]:
    if headroom is None:
        return []
    found = (
        ("device", headroom.device_bytes),
        ("host", headroom.host_bytes),
        ("cgroup", headroom.cgroup_bytes),
    )
    return [(kind, free_bytes) for kind, free_bytes in found if free_bytes is not None]
