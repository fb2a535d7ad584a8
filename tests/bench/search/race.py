"""Searches over a recorded grid, one after another: how far from the best each sampler ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.engine.setting import Setting
from harness.statistics import Floats
from harness.store import TrialRecord
from tests.bench.search.table import Table
from tuning.config import SamplerName
from tuning.prior import Prior
from tuning.samplers import Samplers
from tuning.study import BASELINES, Study

SHARE = 4
"""A search may measure the grid's settings divided by this."""


@dataclass(frozen=True)
class Rival:
    """A way to search."""

    name: str
    sampler: SamplerName
    prior: Prior | None = None


SAMPLERS: tuple[SamplerName, ...] = ("random", "grid", "tpe", "gp", "cmaes", "auto")
OURS: SamplerName = "auto"


def rivals_of(table: Table, samplers: Sequence[SamplerName]) -> list[Rival]:
    """Return each sampler as a user gets it, and ours besides with nothing expected of any setting."""
    plain = [Rival(name, name) for name in samplers if name != OURS]
    return [*plain, Rival(f"{OURS}, nothing expected", OURS), Rival(OURS, OURS, table.prior)]


@dataclass(frozen=True)
class Result:
    """What one rival reached on one table: a regret for each seed."""

    rival: str
    regrets: Floats
    """True P99 of what it found best, over the best of the grid, less 1."""
    redrawn: Floats
    """The same where the table was drawn again for each seed, so that its best setting is not always the same one."""

    @property
    def median(self) -> float:
        """Half of the searches end nearer."""
        return float(np.median(self.regrets))

    @property
    def mean(self) -> float:
        """The mean over all searches."""
        return float(np.mean(self.regrets))

    def share_within(self, limit: float) -> float:
        """Return the share of searches that end no farther from the best than `limit`."""
        return float(np.mean(self.regrets <= limit))

    @property
    def p90(self) -> float:
        """Nine of ten searches end nearer."""
        return float(np.quantile(self.regrets, 0.9))


def trials_of(table: Table) -> int:
    """Return how many settings a search may measure."""
    return len(table.truth_s) // SHARE


def races(table: Table, rivals: Iterable[Rival], seeds: int) -> Iterator[Result]:
    """Let each rival search `table` once for every seed, and once a redrawn one."""
    redrawn = [table.redrawn(np.random.default_rng((seed, 2))) for seed in range(seeds)]
    for rival in rivals:
        regrets = [_regret(table, rival, seed) for seed in range(seeds)]
        others = [_regret(drawn, rival, seed) for seed, drawn in enumerate(redrawn)]
        yield Result(rival.name, np.array(regrets), np.array(others))


def _regret(table: Table, rival: Rival, seed: int) -> float:
    found = search(table, rival, seed, trials_of(table))
    return table.truth_s[found] / min(table.truth_s.values()) - 1 if found else math.inf


def search(table: Table, rival: Rival, seed: int, trials: int) -> str | None:
    """Search once and return the key of the setting with the lowest measured P99; None when none was feasible."""
    samplers = Samplers(rival.sampler, table.space, Setting.canonical, seed, rival.prior)
    baselines = tuple(setting for setting in BASELINES if setting.key in table.runs)
    study = Study(None, samplers=samplers, objective=table.objective, baselines=baselines)
    random = np.random.default_rng((seed, 1))
    records: list[TrialRecord] = []
    while len(records) < trials + len(baselines) and (proposal := study.propose(records)):
        record = table.measure(proposal.setting, random, number=len(records))
        records.append(record)
        study.learn(proposal, record)
    feasible = [r for r in records if table.objective.feasible(r) and r.setting.key in table.truth_s]
    return min(feasible, key=lambda record: record.p99_s).setting.key if feasible else None
