"""The settings of a Pareto search that trade its goals against each other: none is beaten in all of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from harness.statistics import Floats
from harness.store import TrialRecord
from tuning.objective.objective import Objective


def front(records: Iterable[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """Return the feasible trials of the search that no other one dominates, best first by the objective.

    A trial is dominated when another one is as good in every goal and better in one. Only trials of the search are
    looked at, as all of them played the same sessions (design rule 13); of one setting the last trial counts. Their
    figures are of one trial each, with its noise.
    """
    searched = {r.setting.key: r for r in records if r.purpose == "search" and objective.feasible(r)}
    found = list(searched.values())
    signs = np.array([-1.0 if goal.maximised else 1.0 for goal in objective.goals])
    costs = np.array([objective.values(record) for record in found]).reshape(len(found), len(signs)) * signs
    kept = [record for record, cost in zip(found, costs, strict=True) if not dominated(cost, costs)]
    return sorted(kept, key=lambda record: (*objective.values(record) * signs, record.number))


def dominated(cost: Floats, costs: Floats) -> bool:
    """Whether a row of `costs` is as low as `cost` in every column and lower in one."""
    return bool(np.any(np.all(costs <= cost, axis=1) & np.any(costs < cost, axis=1)))
