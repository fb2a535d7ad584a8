"""What earlier studies have to give to a new one: settings to begin with, or, where all is equal, their trials.

Measurements under other conditions are never pooled (design rule 11). What did well there is only tried first here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.engine.setting import Setting
from harness.errors import StoreError
from harness.store import TRIAL_FILE, Outcome, TrialRecord, folder_of, next_number, read_trials, write_trial
from scenarios.errors import ConfigError
from tuning.config import STUDY_FILE, Search, StudyFile, differences, read_study
from tuning.objective import Objective
from tuning.samplers.points import Canonical, Point, point_of
from tuning.study import BASELINES

MOST = 3
"""Settings of earlier studies that a new one begins with: enough to find out whether they do well here too."""
SAYS_NOTHING_OF_A_TRIAL = frozenset({"space", "constraints", "restart_hook", "restart_input", "url", "engine_python"})
"""What two searches may differ in while their trials of one setting are the same measurement."""


@dataclass(frozen=True)
class Warm:
    """A setting to begin with, and the study that found it."""

    point: Point
    study: str


def warm_start(results: Path, wanted: StudyFile, objective: Objective, canonical: Canonical) -> list[Warm]:
    """Return the best settings of earlier studies of this model, machine and scenario, those of the newest first.

    Each study orders its own settings: what was measured at other times is not compared.
    """
    ranked = [
        [Warm(point, root.name) for point in _best_first(root, wanted, objective, canonical)]
        for root in _alike(results, wanted)
    ]
    found: dict[str, Warm] = {}
    for place in range(max(map(len, ranked), default=0)):
        for warm in (each[place] for each in ranked if place < len(each)):
            found.setdefault(warm.point.key, warm)
    return list(found.values())[:MOST]


def check_import(source: Path, wanted: StudyFile) -> None:
    """Raise ConfigError, which names every difference, unless the trials in `source` are measurements of `wanted`."""
    stored = read_study(source)
    found = [
        *differences(stored.search, wanted.search, apart_from=SAYS_NOTHING_OF_A_TRIAL),
        *wanted.environment.differences(stored.environment),
    ]
    if found:
        raise ConfigError(
            f"--import {source.name}: its trials were measured under other conditions: {'; '.join(found)}; leave "
            "--import out: without it a search only begins with what did well there"
        )


def import_trials(source: Path, root: Path, wanted: Search, canonical: Canonical) -> list[Point]:
    """Copy the search trials of `source` whose setting is one of the baselines or of the space that is searched.

    Returns the points of the latter, whose trials the sampler is still to be told. A copy that is cut off has no
    trial.json, as a trial that is cut off.
    """
    points: dict[str, Point] = {}
    for record in read_trials(source):
        point = point_of(record.setting, wanted.space, canonical)
        if record.purpose == "search" and _says_something(record) and (point or record.setting in BASELINES):
            _copy(source, record, root)
            if point:
                points[point.key] = point
    return list(points.values())


def _copy(source: Path, record: TrialRecord, root: Path) -> None:
    number = next_number(root)
    folder = folder_of(root, number, record.purpose)
    shutil.copytree(folder_of(source, record.number, record.purpose), folder, ignore=shutil.ignore_patterns(TRIAL_FILE))
    write_trial(record.model_copy(update={"number": number}), folder)


def _alike(results: Path, wanted: StudyFile) -> Iterator[Path]:
    """Yield the folders of earlier studies under equal conditions, the newest first."""
    files = sorted(results.glob(f"*/{STUDY_FILE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files:
        try:
            stored = read_study(path.parent)
        except (ConfigError, StoreError):
            continue  # a study that cannot be read has nothing to give, and is no reason not to search
        same_load = stored.search.scenario.name == wanted.search.scenario.name
        if stored.name != wanted.name and same_load and not any(wanted.environment.differences(stored.environment)):
            yield path.parent


def _best_first(root: Path, wanted: StudyFile, objective: Objective, canonical: Canonical) -> Iterator[Point]:
    try:
        records = read_trials(root)
    except StoreError:
        return
    feasible = [r for r in records if r.purpose == "search" and objective.feasible(r)]
    for setting in _in_order(feasible, objective)[:MOST]:
        if point := point_of(setting, wanted.search.space, canonical):
            yield point


def _in_order(records: Sequence[TrialRecord], objective: Objective) -> list[Setting]:
    return [record.setting for record in sorted(records, key=objective.order)]


def _says_something(record: TrialRecord) -> bool:
    return record.outcome not in (Outcome.INVALID, Outcome.INTERRUPTED)
