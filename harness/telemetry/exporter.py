"""Our own metrics of a search that runs.

Every metric has the label `study`, so that a series exists only once its value is known: an unlabelled gauge
would claim a best TTFT of zero before the first trial. Labels are bounded: what is new in each trial (its number, its
setting) is in `_info` metrics alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from prometheus_client.metrics_core import CounterMetricFamily, InfoMetricFamily, Metric

from harness.telemetry.exposition import Exposition, gauge
from harness.telemetry.trial_metrics import BEST, LAST, TrialFigures, trial_families

BY_STUDY = ("study",)


@dataclass(frozen=True)
class LoadFigures:
    """How far the load of the current trial has come; requests of counted sessions."""

    done: int
    of: int
    failed: int
    in_flight: int
    ttft_p50_s: float | None


class Exporter(Exposition):
    """The metrics of one study."""

    def __init__(self, study: str) -> None:
        super().__init__()
        self._study = study
        self._about: Mapping[str, str] | None = None
        self._running: bool | None = None
        self._planned: int | None = None
        self._started = 0
        self._tried: set[str | int] = set()
        self._remaining_s: float | None = None
        self._progress_at_s: float | None = None
        self._current: Mapping[str, str] | None = None
        self._step: str | None = None
        self._load: LoadFigures | None = None
        self._engine: str | None = None
        self._by_role: dict[str, TrialFigures] = {}
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._failures: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    def study_started(self, *, planned_trials: int, about: Mapping[str, str] | None = None) -> None:
        """Say how many settings the study will try, and under which conditions."""
        self._planned, self._about, self._running = planned_trials, about, True
        self.progressed()

    def study_ended(self) -> None:
        """Say that nothing runs any more; the figures stay."""
        self._running, self._current, self._step, self._load, self._remaining_s = False, None, None, None, None
        self._engine = None

    def trial_started(self, number: int, setting: str, *, remaining_s: float | None = None) -> None:
        """Say which trial runs; `setting` is its short name, and `remaining_s` about how long the study takes."""
        self._current, self._step, self._load = {"trial": str(number), "setting": setting}, None, None
        self._remaining_s = remaining_s
        self._started += 1
        self.progressed()

    def progressed(self) -> None:
        """Say that the search has got on."""
        self._progress_at_s = time.time()

    def step_started(self, step: str) -> None:
        """Say which step of the trial runs."""
        self._step = step
        self.progressed()

    def load_progressed(self, load: LoadFigures) -> None:
        """Say how far the load has come; requests that stand still are no progress."""
        if self._load is None or load.done > self._load.done:
            self.progressed()
        self._load = load

    def engine_at(self, base_url: str) -> None:
        """Say where the engine of the trial answers, for Prometheus' service discovery."""
        self._engine = urlsplit(base_url).netloc

    def engine_gone(self) -> None:
        """Say that the engine is being stopped."""
        self._engine = None

    def trial_finished(
        self, figures: TrialFigures, *, best: TrialFigures | None = None, baseline: str | None = None
    ) -> None:
        """Show a trial that has ended, and the best so far; `baseline` is OFF or ON when it measured one.

        A resumed study tells its earlier trials first, so that its counts go on.
        """
        self._current, self._step, self._load = None, None, None
        self._by_role[LAST] = figures
        if best is not None:
            self._by_role[BEST] = best
        if baseline is not None and figures.ttft_s:
            self._by_role[baseline] = figures
        if figures.purpose not in ("confirm", "stress") and figures.outcome != "interrupted":
            # A setting that is tried once more counts once; a search for a limit has one setting, at many rates.
            self._tried.add(figures.setting if figures.purpose == "search" else figures.number)
        self._outcomes[figures.purpose, figures.outcome] += 1
        if figures.failure is not None:
            self._failures[figures.failure] += 1
        self._requests.update(figures.requests)
        self.progressed()

    def targets(self) -> list[dict[str, object]]:
        """List the engine that runs now. Its `instance` is the study: every launch takes another port."""
        if self._engine is None:
            return []
        return [{"targets": [self._engine], "labels": {"study": self._study, "instance": self._study}}]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its help; one whose value is unknown has no sample."""
        yield from self._of_study()
        yield from self._of_current_trial()
        yield from self._counted()
        roles = [((self._study, role), figures) for role, figures in list(self._by_role.items())]
        yield from trial_families(roles)

    def _of_study(self) -> Iterator[Metric]:
        study = (self._study,)
        done = len(self._tried) if self._planned is not None else None
        about = InfoMetricFamily("hicache_tune_study", "What is searched, and under which conditions.", labels=BY_STUDY)
        if self._about is not None:
            about.add_metric(study, dict(self._about))
        yield about
        for name, text, value in (
            ("study_running", "1 while the search runs, 0 once it has ended.", self._running),
            ("study_trials_planned", "Settings that the study will try.", self._planned),
            ("study_trials_done", "Settings that were tried.", done),
            ("study_remaining_seconds", "About how long the study still takes.", self._remaining_s),
            (
                "last_progress_timestamp_seconds",
                "When the search last got on: a step began, a request was answered, a trial ended.",
                self._progress_at_s,
            ),
        ):
            yield gauge(f"hicache_tune_{name}", text, BY_STUDY, [(study, value)])

    def _of_current_trial(self) -> Iterator[Metric]:
        study, load = (self._study,), self._load
        current = InfoMetricFamily("hicache_tune_current_trial", "The trial that runs.", labels=BY_STUDY)
        if self._current is not None:
            current.add_metric(study, dict(self._current))
        yield current
        step = InfoMetricFamily("hicache_tune_current_step", "The step of the trial that runs.", labels=BY_STUDY)
        if self._step is not None:
            step.add_metric(study, {"step": self._step})
        yield step
        states = ("done", "planned", "failed", "in_flight")
        counts = (load.done, load.of, load.failed, load.in_flight) if load else (None, None, None, None)
        yield gauge(
            "hicache_tune_current_trial_requests",
            "Requests of the load that runs, of counted sessions.",
            ("study", "state"),
            [((self._study, state), count) for state, count in zip(states, counts, strict=True)],
        )
        yield gauge(
            "hicache_tune_current_trial_ttft_p50_seconds",
            "Median TTFT of the latest replies of the load that runs.",
            BY_STUDY,
            [(study, load.ttft_p50_s if load else None)],
        )

    def _counted(self) -> Iterator[Metric]:
        trials = CounterMetricFamily(
            "hicache_tune_trials", "Trials ended, by outcome.", labels=("study", "purpose", "outcome")
        )
        for key, count in list(self._outcomes.items()):
            trials.add_metric((self._study, *key), count)
        started = CounterMetricFamily("hicache_tune_trials_started", "Trials begun.", labels=BY_STUDY)
        if self._planned is not None:
            started.add_metric((self._study,), self._started)
        failures = CounterMetricFamily(
            "hicache_tune_trial_failures", "Trials whose engine failed, by class.", labels=("study", "failure")
        )
        for failure, count in list(self._failures.items()):
            failures.add_metric((self._study, failure), count)
        requests = CounterMetricFamily(
            "hicache_tune_requests", "Counted requests of all trials, by how they ended.", labels=("study", "status")
        )
        for status, count in list(self._requests.items()):
            requests.add_metric((self._study, status), count)
        yield from (trials, started, failures, requests)
