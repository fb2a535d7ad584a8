"""A recorded grid as a search space: every measurement of it is a resample of what was really measured.

A folder of docs/evidence is read as it is: `study.json`, `trials/NNNN-PURPOSE.json`, `requests/NNNN-PURPOSE.parquet`.
Nothing is interpolated: the space has the settings that were recorded and no other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd

from harness.engine.setting import Setting
from harness.load.record import read_records
from harness.metrics import answered, ttft_s
from harness.statistics import Sessions
from harness.store import Outcome, TrialRecord
from scenarios.errors import ConfigError
from scenarios.plan import Phase
from scenarios.strict import StrictModel
from tuning.config import StudyFile
from tuning.objective import Constraint, Objective
from tuning.prior import Pools, Prior, curve_of
from tuning.space import Space, only, setting_of

HICACHE = "hicache"
P99 = 0.99
LEAST = 12
"""Settings that a grid must have: a quarter of fewer is no search."""


class Axis(StrictModel):
    """One flag and the values that were recorded of it, in order."""

    name: str
    values: tuple[Any, ...]
    needs_hicache: bool

    def suggest(self, trial: optuna.Trial) -> Any:
        """Ask Optuna for a value: for a number by its place, so that its samplers know what lies between what."""
        if self.is_ordered:
            return self.values[trial.suggest_int(self.name, 0, len(self.values) - 1)]
        return trial.suggest_categorical(self.name, self.values)

    @property
    def is_ordered(self) -> bool:
        """Whether the values are numbers."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


class GridSpace(Space):
    """The settings of a recorded grid."""

    axes: tuple[Axis, ...]

    def propose(self, trial: optuna.Trial) -> Setting:
        """Ask Optuna for one of them."""
        values: dict[str, Any] = {}
        for axis in self.axes:
            if not axis.needs_hicache or values.get(HICACHE):
                values[axis.name] = axis.values[0] if len(axis.values) == 1 else axis.suggest(trial)
        return setting_of(values)

    def settings(self) -> Iterator[Setting]:
        """Yield each of them; raise ConfigError when some of the values exclude each other, as in no grid."""
        for words in product(*(axis.values for axis in self.axes)):
            values = dict(zip((axis.name for axis in self.axes), words, strict=True))
            yield setting_of(values)


@dataclass(frozen=True)
class Run:
    """One recorded trial."""

    record: TrialRecord
    frame: pd.DataFrame
    """Its counted requests that were answered."""

    @cached_property
    def sessions(self) -> Sessions:
        """Their TTFT by session."""
        return Sessions(ttft_s(self.frame), self.frame["session_id"].to_numpy(dtype=object))

    def resampled_p99_s(self, random: np.random.Generator) -> float:
        """Return the P99 of as many sessions drawn with replacement."""
        units = self.sessions.units
        drawn = np.bincount(random.integers(0, units, units), minlength=units)
        return self.sessions.quantile(P99, drawn)

    def redrawn(self, random: np.random.Generator) -> Run:
        """Draw as many sessions with replacement; by their new names those of two draws count as the same sessions."""
        rows = list(self.frame.groupby("session_id", sort=True).indices.values())
        if not rows:
            return self
        drawn = [rows[at] for at in random.integers(0, len(rows), len(rows))]
        names = np.repeat([f"s{place}" for place in range(len(drawn))], [len(each) for each in drawn])
        return Run(self.record, self.frame.iloc[np.concatenate(drawn)].assign(session_id=names))


@dataclass(frozen=True)
class Table:
    """All that was recorded of one grid."""

    name: str
    study: StudyFile
    runs: dict[str, list[Run]]
    """By the key of their setting."""

    @classmethod
    def read(cls, folder: Path) -> Table:
        """Read a folder of docs/evidence; trials that say nothing are left out."""
        study = StudyFile.parse(json.loads((folder / "study.json").read_text(encoding="utf-8")), where=str(folder))
        runs: dict[str, list[Run]] = defaultdict(list)
        for path in sorted((folder / "trials").glob("*.json")):
            record = TrialRecord.parse(json.loads(path.read_text(encoding="utf-8")), where=str(path))
            requests = folder / "requests" / f"{path.stem}.parquet"
            if record.outcome not in (Outcome.INVALID, Outcome.INTERRUPTED):
                runs[record.setting.key].append(Run(record, _counted(requests)))
        return cls(folder.name, study, dict(runs))

    @property
    def objective(self) -> Objective:
        """What the recorded study minimised."""
        search = self.study.search
        return Objective(tuple(map(Constraint.parse, search.constraints)), search.load_limit_s)

    @cached_property
    def space(self) -> GridSpace:
        """The flags that were varied, over all values that were recorded of them."""
        found: dict[str, set[Any]] = defaultdict(set)
        for setting in self._settings():
            for name, value in _values(setting):
                found[name].add(value)
        hicache_off = {name for setting in self._settings() if not setting.hicache for name, _ in _values(setting)}
        axes = (Axis(name=name, values=_in_order(found[name]), needs_hicache=name not in hicache_off) for name in found)
        return GridSpace(dimensions=(), axes=tuple(sorted(axes, key=lambda axis: axis.name != HICACHE)))

    @property
    def why_no_grid(self) -> str | None:
        """Why the table is no full grid, and cannot be searched; None where it is one."""
        try:
            missing = list(dict.fromkeys(s.label for s in self.space.settings() if s.key not in self.runs))
        except ConfigError as problem:
            return str(problem)
        if missing:
            return f"{len(missing)} settings between its own were not recorded, such as {missing[0]}"
        return f"it has {len(self.truth_s)} settings" if len(self.truth_s) < LEAST else None

    @cached_property
    def truth_s(self) -> dict[str, float]:
        """The P99 of all recorded requests of each setting of the grid that may win."""
        keys = dict.fromkeys(setting.key for setting in self.space.settings())
        return {key: self._truth_s(self.runs[key]) for key in keys if self._sound(self.runs[key])}

    @cached_property
    def prior(self) -> Prior | None:
        """What a search would expect of each setting from the scenario, with the pools that the engine told."""
        curve = curve_of(self.study.search.scenario, self.study.search.seed)
        return Prior(curve, self._pools) if curve else None

    def measure(self, setting: Setting, random: np.random.Generator, *, number: int) -> TrialRecord:
        """Measure `setting` as it was recorded: one of its runs, and of that as many sessions drawn again."""
        runs = self.runs[setting.key]
        run = runs[random.integers(len(runs))]
        named: dict[str, Any] = {"number": number, "purpose": "search", "setting": setting}
        summary = run.record.summary
        if not run.record.usable or summary is None or summary.steady is None:
            return run.record.model_copy(update=named)
        steady = summary.steady.model_copy(update={"p99_s": run.resampled_p99_s(random)})
        return run.record.model_copy(update={**named, "summary": summary.model_copy(update={"steady": steady})})

    def redrawn(self, random: np.random.Generator) -> Table:
        """Return the table as another recording might have been: other settings may be the lucky ones."""
        runs = {key: [run.redrawn(random) for run in group] for key, group in self.runs.items()}
        return Table(self.name, self.study, runs)

    def _settings(self) -> list[Setting]:
        """Return the settings that say as much as any other: the baselines, which leave flags open, are no grid."""
        settings = [runs[0].record.setting for runs in self.runs.values()]
        most = {
            hicache: max((len(list(_values(s))) for s in settings if s.hicache is hicache), default=0)
            for hicache in (False, True)
        }
        return [s for s in settings if len(list(_values(s))) == most[s.hicache]]

    def _pools(self, setting: Setting) -> Pools | None:
        effective = self.runs[setting.key][0].record.effective
        if effective is None or effective.device_pool_tokens is None:
            return None
        return Pools(effective.device_pool_tokens, effective.host_pool_tokens or 0)

    def _sound(self, runs: Sequence[Run]) -> bool:
        return all(run.record.usable and self.objective.feasible(run.record) for run in runs)

    def _truth_s(self, runs: Sequence[Run]) -> float:
        return float(np.quantile(np.concatenate([ttft_s(run.frame) for run in runs]), P99))


def _values(setting: Setting) -> Iterator[tuple[str, Any]]:
    return ((dimension.name, dimension.choices[0]) for dimension in only(setting).dimensions)


def _in_order(values: set[Any]) -> tuple[Any, ...]:
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))


def _counted(path: Path) -> pd.DataFrame:
    if not path.exists():
        return pd.DataFrame(columns=["session_id", "turn"])
    frame = read_records(path)
    counted = frame[frame["phase"] == Phase.COUNTED]
    return counted[answered(counted)]
