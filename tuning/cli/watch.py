"""How a running search is shown: a live line on a terminal, plain lines elsewhere, and JSON lines in study.log."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import structlog
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from harness.engine.readiness import LaunchPhase
from harness.engine.setting import Setting
from harness.load.job import LoadProgress
from harness.store import Outcome, Purpose, Step, TrialRecord, folder_of, read_trial
from harness.telemetry import Exporter
from harness.telemetry.exporter import LoadFigures
from tuning.cli.figures import baseline_of, engine_of, figures_of
from tuning.limit import Bracket
from tuning.limit_finder import ProbeResult
from tuning.objective import TTFT_P99, Metric, sustained_per_s

LOG_FILE = "study.log"
STAGES: dict[Purpose, str] = {
    "confirm": "confirmation",
    "compare": "comparison",
    "stress": "more load than asked for",
    "limit": "limit",
}
"""What a trial that is no proposal of a search is part of."""


class ConsoleWatch:
    """Shows a search on `console` and logs each step with its duration; use it as a context manager."""

    def __init__(
        self, console: Console, root: Path, exporter: Exporter, *, planned: int, metric: Metric = TTFT_P99
    ) -> None:
        self._console, self._exporter, self._planned, self._root = console, exporter, planned, root
        self._metric = metric
        root.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = (root / LOG_FILE).open("a", encoding="utf-8")
        self._log = structlog.wrap_logger(
            structlog.WriteLogger(self._file),
            processors=[structlog.processors.TimeStamper(fmt="iso", utc=True), structlog.processors.JSONRenderer()],
        )
        self._status = Status("", console=console)
        self._head = ""
        self._playing: int | None = None
        """The trial whose engine the exporter was told of."""

    def __enter__(self) -> ConsoleWatch:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        self._file.close()

    def trial_begins(self, number: int, purpose: Purpose, setting: Setting, *, measured: int, eta_s: float) -> None:
        """Show which setting is measured next."""
        stage = f"{measured} of {self._planned} settings searched" if purpose == "search" else STAGES[purpose]
        self._head = f"trial {number} ({stage}, about {_minutes(eta_s)} left)"
        self._exporter.trial_started(number, setting.label, remaining_s=eta_s)
        self._log.info("trial begins", trial=number, purpose=purpose, setting=setting.label)
        self._console.print(f"{self._head}: [bold]{escape(setting.label)}[/]")

    def probe_begins(self, number: int, rate_per_s: float, known: Bracket) -> None:
        """Show which rate is probed next, and between which rates the limit lies."""
        low = f"{known.meets_per_s:g}" if known.meets_per_s is not None else "?"
        high = f"{known.misses_per_s:g}" if known.misses_per_s is not None else "?"
        self._head = f"probe {number} (the limit is between {low} and {high} sessions/s)"
        self._exporter.trial_started(number, f"{rate_per_s:g} sessions/s")
        self._log.info("probe begins", trial=number, rate_per_s=rate_per_s)
        self._console.print(f"{self._head}: [bold]{rate_per_s:g} sessions/s[/]")

    def probe_ends(self, probe: ProbeResult, seconds: float) -> None:
        """Show whether the rate keeps the service level."""
        self._exporter.trial_finished(figures_of(read_trial(folder_of(self._root, probe.trial, "limit"))))
        self._log.info("probe ends", trial=probe.trial, meets=probe.meets, why_not=probe.why_not, seconds=seconds)
        p99 = f"TTFT P99 {probe.p99_s:.3f} s, " if probe.p99_s is not None else ""
        verdict = "[green]kept[/]" if probe.meets else f"[yellow]missed[/]: {escape(probe.why_not)}"
        self._console.print(f"  {p99}{verdict} [dim]({seconds:.0f} s)[/]")

    def step(self, number: int, name: str) -> None:
        """Show the step that runs."""
        self._exporter.step_started(name)
        if name == "stop":
            self._exporter.engine_gone()
        self._show(name)

    def step_done(self, number: int, step: Step) -> None:
        """Log a step with its duration."""
        self._log.info("step", trial=number, step=step.name, seconds=step.seconds)

    def launching(self, number: int, phase: LaunchPhase) -> None:
        """Show how far the launch has come."""
        self._exporter.progressed()
        self._show(f"launch: {phase.value}")

    def playing(self, number: int, progress: LoadProgress) -> None:
        """Show how far the load has come."""
        self._export_load(number, progress)
        p50 = f", TTFT P50 {progress.ttft_p50_ms:.0f} ms" if progress.ttft_p50_ms is not None else ""
        failed = f", {progress.failed} failed" if progress.failed else ""
        self._show(f"load: {progress.done} of {progress.of} requests{p50}{failed}")

    def trial_ends(self, record: TrialRecord, *, feasible: bool, best: TrialRecord | None) -> None:
        """Show what the trial was worth."""
        steady = record.summary.steady if record.summary else None
        self._exporter.trial_finished(
            figures_of(record), best=figures_of(best) if best else None, baseline=baseline_of(record)
        )
        self._log.info(
            "trial ends",
            trial=record.number,
            outcome=record.outcome.value,
            reason=record.reason,
            ttft_p99_s=steady.p99_s if steady else None,
            objective=self._metric.value(record) if record.usable else None,
            sustained_per_s=sustained_per_s(record),
            seconds=record.duration_s,
        )
        self._console.print("  " + _in_words(record, self._metric, feasible=feasible, best=best))

    def _export_load(self, number: int, progress: LoadProgress) -> None:
        if self._playing != number and (base_url := engine_of(self._root, number)):
            self._playing = number
            self._exporter.engine_at(base_url)
        p50_s = progress.ttft_p50_ms / 1000 if progress.ttft_p50_ms is not None else None
        self._exporter.load_progressed(
            LoadFigures(progress.done, progress.of, progress.failed, progress.in_flight, p50_s)
        )

    def _show(self, text: str) -> None:
        self._status.update(f"{self._head}: {text}")


def _in_words(record: TrialRecord, metric: Metric, *, feasible: bool, best: TrialRecord | None) -> str:
    took = f"[dim]({record.duration_s:.0f} s)[/]"
    steady = record.summary.steady if record.summary else None
    if record.outcome is not Outcome.MEASURED or steady is None:
        rate = sustained_per_s(record)
        answered = f"; {rate:.2f} requests/s answered" if rate is not None else ""
        return f"[yellow]{record.outcome.value}[/]: {escape(record.reason)}{answered} {took}"
    interval = f" [{steady.p99_low_s:.3f}, {steady.p99_high_s:.3f}]" if steady.p99_low_s and steady.p99_high_s else ""
    hit_rate = record.cache.hit_rate if record.cache else None
    hits = f", hit rate {hit_rate:.0%}" if hit_rate is not None else ""
    mark = "" if feasible else ", [yellow]breaks a constraint[/]"
    first = " [green]best so far[/]" if best is not None and best.number == record.number else ""
    ttft = f"TTFT P99 {steady.p99_s:.3f} s{escape(interval)}, P50 {steady.p50_s:.3f} s"
    return f"{_objective(record, metric)}{ttft}{hits}{mark}{first} {took}"


def _objective(record: TrialRecord, metric: Metric) -> str:
    """Say the objective's value first where it is another than the TTFT P99, which is always shown."""
    if metric == TTFT_P99:
        return ""
    value = metric.value(record)
    return f"{escape(metric.title)} {'-' if value is None else metric.unit.say(value)}, "


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
