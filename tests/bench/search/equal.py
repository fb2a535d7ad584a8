"""An A/A test: all settings of a confirmation are one recorded setting, so a verdict that one is better is false."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from harness.engine.setting import Setting
from harness.store import REQUESTS_FILE, TrialRecord, folder_of
from tests.bench.search.table import Run, Table
from tuning.study import BASELINES
from tuning.verdict import Kind, decide

TOP, ROUNDS = 3, 2
"""The confirmation of a search by default: the best three and both baselines, on two fresh seeds."""
CANDIDATES = (*BASELINES, *(Setting(hicache=True, hicache_ratio=float(ratio)).canonical() for ratio in (3, 4, 5)))


@dataclass(frozen=True)
class EqualSettings:
    """How often a verdict found a difference where there is none."""

    draws: int
    false_improvements: int

    @property
    def rate(self) -> float:
        """The share of false verdicts."""
        return self.false_improvements / self.draws

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % interval of the rate (Wilson)."""
        z = 1.96
        middle = (self.rate + z * z / (2 * self.draws)) / (1 + z * z / self.draws)
        spread = math.sqrt(self.rate * (1 - self.rate) / self.draws + (z / 2 / self.draws) ** 2)
        half = z / (1 + z * z / self.draws) * spread
        return max(0.0, middle - half), min(1.0, middle + half)


def equal_settings(tables: Sequence[Table], draws: int) -> EqualSettings:
    """Draw `draws` confirmations of settings that are all the same one, and count the verdicts that say otherwise."""
    runs = [run for table in tables for group in table.runs.values() for run in group if run.record.usable]
    random = np.random.default_rng(0)
    objective = tables[0].objective
    false = 0
    for draw in range(draws):
        with TemporaryDirectory(prefix="bench-search-") as folder:
            records = list(_confirmation(runs[draw % len(runs)], Path(folder), random))
            verdict = decide(records, Path(folder), baseline_key=BASELINES[0].key, objective=objective)
        false += verdict.kind is Kind.BETTER
    return EqualSettings(draws, false)


def _confirmation(run: Run, root: Path, random: np.random.Generator) -> Iterator[TrialRecord]:
    """Write the trials of a confirmation, each of them a resample of the sessions of `run`."""
    first = {"number": 0, "purpose": "search", "setting": CANDIDATES[-1]}
    yield run.record.model_copy(update=first)
    for number, (seed, setting) in enumerate(((s, c) for s in range(ROUNDS) for c in CANDIDATES), start=1):
        named: dict[str, Any] = {"number": number, "purpose": "confirm", "setting": setting, "seed": seed}
        record = run.record.model_copy(update=named)
        folder = folder_of(root, number, "confirm")
        folder.mkdir(parents=True)
        run.redrawn(random).frame.to_parquet(folder / REQUESTS_FILE, index=False)
        yield record
