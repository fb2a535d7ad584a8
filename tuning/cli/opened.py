"""A study that is open for work: its folder, its laboratory, and whoever shows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from harness.engine.spec import EngineSpec
from harness.environment import Environment
from harness.errors import StoreError
from harness.lab import Lab
from harness.load.job import ApiName
from harness.stopping import StopFlag
from harness.store import TrialRecord, read_trials
from harness.telemetry import Exporter, Nvml, NvmlUnavailable, open_nvml, required
from scenarios import Plan, PromptTokenizer, Scenario, describe, make_plan
from tuning.cli.figures import baseline_of, conditions_of, figures_of
from tuning.cli.target import StudyOptions
from tuning.cli.watch import ConsoleWatch
from tuning.config import Search, StudyFile, open_study
from tuning.engines import launcher_of
from tuning.objective import Objective
from tuning.room import check_machine

METRICS_FILE = "metrics.prom"
"""What the exporter showed last, for node_exporter's textfile collector: a study that has ended can be compared."""


@dataclass(frozen=True)
class OpenStudy:
    """What a command works with while a study is open."""

    lab: Lab
    file: StudyFile
    objective: Objective
    watch: ConsoleWatch
    stop: StopFlag
    tokenizer: PromptTokenizer
    first_plan: Plan
    """Of the study's own scenario and seed; it takes seconds to make."""

    def plan(self, scenario: Scenario, seed: int) -> Plan:
        """Make the sessions of `scenario` for `seed`."""
        search = self.file.search
        if scenario == search.scenario and seed == search.seed:
            return self.first_plan
        return make_plan(scenario, seed, self.tokenizer, search.api)


@contextmanager
def opened(
    console: Console,
    options: StudyOptions,
    wanted: Search,
    spec: EngineSpec,
    root: Path,
    *,
    planned: int,
    about: Callable[[StudyFile], StudyFile] = lambda file: file,
) -> Iterator[OpenStudy]:
    """Open the study in `root`, or go on with it; heed signals and show progress until the block ends.

    `planned` trials are announced; `about` has the last word on what is kept of the study before its folder is made.
    Raises ConfigError for a study under other conditions.
    """
    for warning in spec.warnings:
        console.print(f"[yellow]note:[/] {escape(warning)}")
    objective = Objective.of(wanted)
    device = open_devices(spec)
    if any(constraint.metric.text.startswith("headroom.device") for constraint in objective.constraints):
        required(device)
    tokenizer = PromptTokenizer.load(wanted.model)
    plan = make_plan(wanted.scenario, wanted.seed, tokenizer, wanted.api)
    summary = describe(plan, tokenizer)
    file = about(StudyFile.of(root.name, wanted, Environment.of(spec, device)))
    check_machine(wanted, spec, root, unique_tokens=summary.unique_tokens)
    open_study(root, file, resume=options.resume)
    stop = StopFlag()
    with (
        stop.on_signals(),
        Exporter(root.name) as exporter,
        ConsoleWatch(console, root, exporter, planned=planned, metric=objective.metric) as watch,
    ):
        exporter.study_started(planned_trials=planned, about=conditions_of(wanted, file.environment))
        _tell_earlier_trials(exporter, root, objective)
        if options.metrics_port is not None:
            exporter.start(options.metrics_port)
        lab = Lab(
            root=root,
            spec=spec,
            watch=watch,
            should_stop=stop.should_stop,
            must_hurry=stop.must_hurry,
            api=ApiName(wanted.api),
            load_limit_s=wanted.load_limit_s,
            warm_up_tokens=round(summary.mean_prompt_tokens),
            device=device,
            launcher=launcher_of(wanted, spec, root, gpus=uuids(device)),
            api_key_env=wanted.api_key_env,
            load_processes=options.load_processes,
            session_header=options.session_header,
            keep_storage=wanted.keep_storage,
            slos=objective.service_levels,
            hang_after_s=options.hang_after_s(),
        )
        try:
            yield OpenStudy(lab, file, objective, watch, stop, tokenizer, plan)
        finally:
            exporter.study_ended()
            _keep_metrics(console, exporter, root)
            if not stop.should_stop():
                exporter.wait_scraped()


def open_devices(spec: EngineSpec) -> Nvml | NvmlUnavailable:
    """Open the GPUs that the engine computes on, as far as they are this machine's."""
    if not spec.near:
        return NvmlUnavailable("the engine runs on another machine")
    return open_nvml(os.environ.get("CUDA_VISIBLE_DEVICES"), count=spec.gpus if spec.device == "cuda" else None)


def uuids(device: Nvml | NvmlUnavailable) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs in use."""
    return tuple(gpu.uuid for gpu in device.devices) if isinstance(device, Nvml) else ()


def _keep_metrics(console: Console, exporter: Exporter, root: Path) -> None:
    try:
        exporter.write_textfile(root / METRICS_FILE)
    except StoreError as problem:  # the measurements are what counts: an answer must not be lost for a copy
        console.print(f"[yellow]{escape(str(problem))}[/]")


def _tell_earlier_trials(exporter: Exporter, root: Path, objective: Objective) -> None:
    """Show what earlier runs of the study have found."""
    best: TrialRecord | None = None
    for record in read_trials(root):
        feasible = record.purpose == "search" and objective.feasible(record)
        if feasible and (best is None or objective.order(record) < objective.order(best)):
            best = record
        exporter.trial_finished(
            figures_of(record), best=figures_of(best) if best else None, baseline=baseline_of(record)
        )
