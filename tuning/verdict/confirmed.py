"""The fresh trials of one setting, and what their requests say: all that a verdict may rest on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from harness.load.record import read_records
from harness.statistics import Change, Statistic, compare
from harness.store import Outcome, Purpose, TrialRecord, requests_path
from tuning.answers import shared_turns
from tuning.objective import TTFT_P99, Objective, SessionMetric

NEGLIGIBLE = 0.02
"""Settings that surely differ by less than this are equal for every user."""

_NO_ROWS = pd.DataFrame({"session": [], "turn": []})


class Confirmed:
    """The fresh trials of one setting under one objective; sessions of different seeds are different ones."""

    def __init__(self, records: Sequence[TrialRecord], root: Path, metric: SessionMetric = TTFT_P99) -> None:
        self.records = records
        self.setting = records[0].setting
        self.metric = metric
        self._root = root
        self._rows = {record.seed: _rows(root, record, metric) for record in records}

    @property
    def seeds(self) -> frozenset[int]:
        """The seeds that it was measured on."""
        return frozenset(self._rows)

    @property
    def sustained(self) -> bool:
        """Whether every one of its trials may be compared."""
        return all(record.usable for record in self.records)

    @property
    def known(self) -> bool:
        """Whether its requests tell the objective at all."""
        return any(len(rows) for rows in self._rows.values())

    @cached_property
    def statistic(self) -> Statistic:
        """The objective over all of its sessions; only where it is known."""
        return self.metric.statistic(pd.concat(self._rows.values(), ignore_index=True))

    @cached_property
    def value(self) -> float:
        """The objective's value in its unit; only where it is known."""
        return self.statistic.value()

    @property
    def cost(self) -> float:
        """The value, such that less is better."""
        return -self.value if self.metric.maximised else self.value

    @property
    def host_pool_tokens(self) -> float:
        """Host tokens of the setting: 0 without HiCache, infinite when the engine did not say."""
        if not self.setting.hicache:
            return 0.0
        effective = self.records[-1].effective
        tokens = effective.host_pool_tokens if effective else None
        return float("inf") if tokens is None else float(tokens)

    def over(self, seeds: frozenset[int]) -> Confirmed:
        """Return its trials on `seeds`; all of them when it has none on those."""
        kept = [record for record in self.records if record.seed in seeds]
        return Confirmed(kept, self._root, self.metric) if kept else self

    def sound(self, objective: Objective) -> bool:
        """Whether it may win: each of its trials may be compared and keeps to every constraint."""
        return self.sustained and self.known and all(map(objective.feasible, self.records))

    def by(self, metric: SessionMetric) -> Confirmed:
        """Look at the same trials under another objective."""
        return self if metric == self.metric else Confirmed(self.records, self._root, metric)

    def change_from(self, other: Confirmed) -> Change | None:
        """Return how its value differs from `other`'s over what both played; None when that is nothing."""
        pairs = [shared_turns(self._rows[seed], other._rows[seed]) for seed in sorted(self.seeds & other.seeds)]
        if not any(len(mine) for mine, _ in pairs):
            return None
        mine, theirs = (pd.concat(side, ignore_index=True) for side in zip(*pairs, strict=True))
        return compare(self.metric.statistic(theirs), self.metric.statistic(mine))

    def surely_better(self, change: Change) -> bool:
        """Whether the interval of its change from another setting lies on the better side of zero."""
        if change.interval is None:
            return False
        return change.interval.low > 0 if self.metric.maximised else change.interval.high < 0

    def ties_with(self, best: Confirmed) -> bool:
        """Whether the interval of the difference does not exclude that both are equal for every user."""
        if self is best:
            return True
        found = self.change_from(best)
        if found is None:
            return False
        interval = found.relative_interval
        if interval is None:
            return True
        return interval.high >= -NEGLIGIBLE if self.metric.maximised else interval.low <= NEGLIGIBLE


def confirmations(
    records: Iterable[TrialRecord], root: Path, metric: SessionMetric = TTFT_P99, *, purpose: Purpose = "confirm"
) -> dict[str, Confirmed]:
    """Group the fresh trials by setting; of several on one seed the last counts, as it was the second try."""
    judged = [r for r in records if r.outcome not in (Outcome.INTERRUPTED, Outcome.INVALID)]
    last = {(record.setting.key, record.seed): record for record in judged if record.purpose == purpose}
    groups: dict[str, list[TrialRecord]] = defaultdict(list)
    for (key, _), record in last.items():
        groups[key].append(record)
    return {key: Confirmed(group, root, metric) for key, group in groups.items()}


def over_equal_sessions(sound: dict[str, Confirmed], baseline_key: str) -> tuple[frozenset[str], dict[str, Confirmed]]:
    """Keep the seeds that all who may win were measured on, as far as there are any (design rule 13); name those.

    A setting that was surely worse after some rounds played no more of them: it must not take the others' rounds away.
    """
    finalists = frozenset(sound)
    while shared := frozenset.intersection(*(sound[key].seeds for key in finalists)):
        equal = {key: each.over(shared) for key, each in sound.items()}
        best = best_of(equal[key] for key in finalists)
        left = frozenset(key for key in finalists if key == baseline_key or equal[key].ties_with(best))
        if left == finalists:
            return finalists, equal
        finalists = left
    return finalists, sound


def best_of(settings: Iterable[Confirmed]) -> Confirmed:
    """Return the best by the objective; they must have been measured on the same seeds."""
    return min(settings, key=lambda each: each.cost)


def _rows(root: Path, record: TrialRecord, metric: SessionMetric) -> pd.DataFrame:
    path = requests_path(root, record)
    if not path.exists():
        return _NO_ROWS
    rows = metric.sample(read_records(path))
    return rows.assign(session=f"{record.seed}/" + rows["session_id"].astype(str))
