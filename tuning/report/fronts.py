"""What a lower TTFT P99 is paid with: the settings that no other setting beats in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.strict import StrictModel
from tuning.objective import dominated
from tuning.report.rows import TrialRow


class Place(StrictModel):
    """One setting of the search beside another goal."""

    trial: int
    value: float
    p99_s: float
    on_front: bool
    """Whether no other setting is as good in both and better in one."""


class Front(StrictModel):
    """TTFT P99 against one other goal, over the feasible trials of the search, which played the same sessions."""

    goal: str
    unit: str
    more_is_better: bool
    places: tuple[Place, ...]
    """By value, the best first."""

    @property
    def shown_unit(self) -> str:
        """The unit for people."""
        return "GiB" if self.unit == "bytes" else self.unit

    def shown(self, place: Place) -> float:
        """Return a place's value in the unit for people."""
        return place.value / 2**30 if self.unit == "bytes" else place.value


@dataclass(frozen=True)
class Goal:
    """What else a user may want."""

    name: str
    unit: str
    of: Callable[[TrialRow], float | None]
    more_is_better: bool = False


def _pool(value: Callable[[TrialRow], int | None]) -> Callable[[TrialRow], float | None]:
    """Read what only HiCache has: nothing without it, and unknown where the engine did not say."""
    return lambda row: value(row) if row.hicache else 0.0


GOALS: Sequence[Sequence[Goal]] = (
    (Goal("throughput", "output tokens/s", lambda row: row.output_tokens_per_s, more_is_better=True),),
    (
        Goal("host memory", "bytes", _pool(lambda row: row.host_pool_bytes)),
        Goal("host memory", "tokens", _pool(lambda row: row.host_pool_tokens)),
    ),
    (
        Goal("reloads", "bytes", _pool(lambda row: row.reload_bytes)),
        Goal("reloads", "tokens", _pool(lambda row: row.reload_tokens)),
    ),
)
"""Each goal in the unit that users pay in; in another one where records are older than that figure."""


def fronts(rows: Sequence[TrialRow]) -> tuple[Front, ...]:
    """Find the front of each goal that tells the settings apart."""
    searched = [row for row in rows if row.purpose == "search" and row.feasible and row.ttft]
    found = (_front(goals, searched) for goals in GOALS)
    return tuple(front for front in found if front is not None)


def _front(goals: Sequence[Goal], rows: Sequence[TrialRow]) -> Front | None:
    for goal in goals:
        known = [(row, value) for row in rows if (value := goal.of(row)) is not None]
        if len(known) == len(rows) and len({value for _, value in known}) > 1:
            sign = -1.0 if goal.more_is_better else 1.0
            costs = np.array([(sign * value, row.ttft.p99_s) for row, value in known if row.ttft])
            places = [
                Place(trial=row.number, value=value, p99_s=float(cost[1]), on_front=not dominated(cost, costs))
                for (row, value), cost in zip(known, costs, strict=True)
            ]
            ordered = sorted(places, key=lambda place: place.value, reverse=goal.more_is_better)
            return Front(goal=goal.name, unit=goal.unit, more_is_better=goal.more_is_better, places=tuple(ordered))
    return None
