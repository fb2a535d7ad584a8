"""With what a search begins: the samplers, what is expected of the load, and what earlier studies have to give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from harness.engine.spec import EngineSpec
from harness.telemetry import Nvml
from scenarios.errors import ConfigError, ScenarioError
from tuning.cli.opened import OpenStudy
from tuning.cli.options import SearchOptions
from tuning.config import Effort, Search, StudyFile
from tuning.earlier import check_import, import_trials, warm_start
from tuning.prior import Prior, curve_of, pools_of
from tuning.samplers import Samplers
from tuning.samplers.points import Point
from tuning.study import BASELINES


@dataclass(frozen=True)
class Beginning:
    """What a study starts from."""

    samplers: Samplers
    first: tuple[Mapping[str, Any], ...]
    """Parameters that are proposed before the sampler is asked."""


def about_import(options: SearchOptions, root: Path) -> Callable[[StudyFile], StudyFile]:
    """Return what notes in a new study where its trials come from; it raises ConfigError where they may not."""

    def noted(file: StudyFile) -> StudyFile:
        if options.import_study is None:
            return file
        if options.resume:
            raise ConfigError("--import is for a new study; leave it out to go on with this one")
        check_import(options.results / options.import_study, file)
        return file.model_copy(update={"imported_from": options.import_study})

    if options.import_study == root.name:
        raise ConfigError(f"--import {root.name}: this is the study itself; give the new one another --study name")
    return noted


def beginning(console: Console, options: SearchOptions, study: OpenStudy, effort: Effort) -> Beginning:
    """Take over trials where the user wants it, and say which settings come first and why."""
    lab, wanted = study.lab, study.file.search
    room = lab.device_room() if isinstance(lab.device, Nvml) else None
    samplers = samplers_of(
        wanted, effort, lab.spec, device_bytes=room.total_bytes if room else None, expecting=options.warm_start
    )
    first: list[Point] = []
    if options.import_study is not None:
        first = import_trials(options.results / options.import_study, lab.root, wanted, samplers.canonical)
        console.print(f"{len(first)} settings of the search are known from {escape(options.import_study)}")
    elif options.warm_start and not options.resume:
        warm = warm_start(options.results, study.file, study.objective, samplers.canonical)
        first = [each.point for each in warm]
        for each in warm:
            found = f"the search begins with {each.point.setting.label}, which did well in {each.study}"
            console.print(escape(found), highlight=False)
    return Beginning(samplers, tuple(point.params for point in first))


def samplers_of(
    wanted: Search, effort: Effort, spec: EngineSpec, *, device_bytes: int | None, expecting: bool
) -> Samplers:
    """Return the samplers of a search on devices of this size; `expecting` lets `auto` foretell settings."""
    prior = _prior(wanted, spec, device_bytes) if expecting and effort.sampler == "auto" else None
    goals = 1 + len(wanted.pareto)
    return Samplers(effort.sampler, wanted.space, spec.canonical, wanted.seed, prior, goals)


def _prior(wanted: Search, spec: EngineSpec, device_bytes: int | None) -> Prior | None:
    if pools_of(BASELINES[0], spec, device_bytes) is None:
        return None
    try:
        curve = curve_of(wanted.scenario, wanted.seed)
    except ScenarioError:  # one that its engine is still to size, or whose prompts tell nothing before they are sent
        return None
    return Prior(curve, lambda setting: pools_of(setting, spec, device_bytes)) if curve else None
