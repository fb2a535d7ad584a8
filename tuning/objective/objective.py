"""What a search improves, and what a setting must keep to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

from harness.metrics import Slo
from harness.store import Outcome, TrialRecord
from tuning.config import Search
from tuning.objective.constraint import Constraint
from tuning.objective.expression import read_metric, read_objective
from tuning.objective.latencies import TTFT_P99
from tuning.objective.metric import Metric, SessionMetric
from tuning.objective.rates import GoodputMetric
from tuning.objective.units import BYTES, SECONDS

LAUNCHED = "launched"
"""The constraint that every setting has: that it starts, stays up and sustains the load."""
MOST_BYTES = 2.0**50
"""More than any trial moves or leaves free."""


@dataclass(frozen=True)
class Objective:
    """One metric to improve, under constraints; in a Pareto search others beside it."""

    constraints: tuple[Constraint, ...]
    worst_s: float
    """What a setting without a latency is told as: the time limit of a load, worse than any that was measured."""
    metric: SessionMetric = TTFT_P99
    """What the winner is chosen by."""
    pareto: tuple[Metric, ...] = ()
    """Further goals; settings that trade them against each other are listed, the winner is not chosen by them."""

    @classmethod
    def of(cls, search: Search) -> Self:
        """Read the objective of a study; raise ConfigError that names the expression at fault."""
        return cls(
            constraints=tuple(map(Constraint.parse, search.constraints)),
            worst_s=search.load_limit_s,
            metric=read_objective(search.objective),
            pareto=tuple(map(read_metric, search.pareto)),
        )

    @property
    def goals(self) -> tuple[Metric, ...]:
        """Everything that is improved, the objective first."""
        return (self.metric, *self.pareto)

    @property
    def directions(self) -> tuple[Literal["minimize", "maximize"], ...]:
        """Which way each goal is better, in Optuna's words."""
        return tuple("maximize" if goal.maximised else "minimize" for goal in self.goals)

    @property
    def service_levels(self) -> tuple[Slo, ...]:
        """Every service level whose goodput the study asks for, each once."""
        asked = (*self.goals, *(constraint.metric for constraint in self.constraints))
        return tuple(dict.fromkeys(metric.slo for metric in asked if isinstance(metric, GoodputMetric)))

    def value(self, record: TrialRecord) -> float | None:
        """Return what the record may be compared by; None when it is not usable or has no such value."""
        return _finite(self.metric, record) if record.usable else None

    def values(self, record: TrialRecord) -> tuple[float, ...]:
        """Return what Optuna is told, one value a goal: finite numbers, whatever happened (design rule 9)."""
        told = (self._told(record), *(_finite(goal, record) for goal in self.pareto))
        return tuple(
            self._worst(goal) if found is None else found for goal, found in zip(self.goals, told, strict=True)
        )

    def order(self, record: TrialRecord) -> float:
        """Return the key that sorts records best first by the objective; infinite for those without a value."""
        value = self.value(record)
        return math.inf if value is None else -value if self.metric.maximised else value

    @property
    def worst(self) -> tuple[float, ...]:
        """What Optuna is told of a setting that cannot run, one value a goal."""
        return tuple(map(self._worst, self.goals))

    def violations(self, record: TrialRecord) -> dict[str, float]:
        """Return the violation of each constraint, for failed trials too: <= 0 keeps to it."""
        seen = {c.text: v for c in self.constraints if (v := c.violation(record)) is not None}
        # A setting without one request of the kind that is to be quick cannot win by it.
        unknown = {f"{self.metric.text} is known": 1.0} if record.usable and self.value(record) is None else {}
        ran = record.usable or record.outcome is Outcome.SURELY_WORSE
        return {LAUNCHED: -1.0 if ran else 1.0} | unknown | seen

    def broken(self, record: TrialRecord) -> list[str]:
        """List the constraints that the record does not keep to."""
        return [name for name, violation in self.violations(record).items() if violation > 0]

    def feasible(self, record: TrialRecord) -> bool:
        """Whether the record may win."""
        return record.usable and not self.broken(record)

    def _told(self, record: TrialRecord) -> float | None:
        """Return the objective as Optuna is told it: of a load that was stopped as surely worse, what it would be."""
        if record.outcome is Outcome.SURELY_WORSE and record.lost is not None:
            return record.lost.p99_s
        return self.value(record)

    def _worst(self, goal: Metric) -> float:
        if goal.unit is SECONDS:
            return self.worst_s
        if goal.unit is BYTES:
            return -MOST_BYTES if goal.maximised else MOST_BYTES
        return 0.0 if goal.maximised else 1.0


def sustained_per_s(record: TrialRecord) -> float | None:
    """Return the requests answered in a second of a load that was not sustained; None of any other trial.

    It stands in the place of latencies that depend on how long one looks (design rule 12).
    """
    if record.outcome is not Outcome.NOT_SUSTAINABLE or record.summary is None:
        return None
    return record.summary.requests_per_s


def _finite(metric: Metric, record: TrialRecord) -> float | None:
    value = metric.value(record)
    return value if value is not None and math.isfinite(value) else None
