"""What enters no comparison, and why: trials that failed, were at fault themselves, or may not win."""

from __future__ import annotations

from collections.abc import Sequence

from harness.store import Outcome
from scenarios.strict import StrictModel
from tuning.report.rows import STRESS, TrialRow

MEANING = {
    Outcome.MEASURED: "measured and shown, but infeasible: it may not win, whatever its P99",
    Outcome.NOT_SUSTAINABLE: "infeasible: the load did not reach a steady state, so its P99 is never compared",
    Outcome.SURELY_WORSE: "may not win: its load ended early, so its P99 is never compared",
    Outcome.INVALID: "says nothing of the setting, as the measurement itself was at fault; tried again",
    Outcome.FAILED: "infeasible unless a second try succeeded: there is nothing to compare",
    Outcome.INTERRUPTED: "says nothing of the setting; a resume measures it again",
}
"""What follows from each outcome of a trial that is left out."""


class LeftOut(StrictModel):
    """Trials that were left out for the same reason."""

    why: str
    meaning: str
    """What follows from it."""
    trial_numbers: tuple[int, ...]
    settings: int
    """How many different settings these trials measured."""
    example: str
    """The reason of the first of them, in full; empty when it gives none beyond `why`."""


def left_out(rows: Sequence[TrialRow]) -> tuple[LeftOut, ...]:
    """Group the trials that may not win by why, the largest group first."""
    groups: dict[str, list[TrialRow]] = {}
    for row in sorted(rows, key=lambda row: row.number):
        if not row.feasible and row.purpose != STRESS:
            groups.setdefault(_why(row), []).append(row)
    found = (
        LeftOut(
            why=why,
            meaning=MEANING[group[0].outcome],
            trial_numbers=tuple(row.number for row in group),
            settings=len({row.key for row in group}),
            example=group[0].why if group[0].why != why else "",
        )
        for why, group in groups.items()
    )
    return tuple(sorted(found, key=lambda each: -len(each.trial_numbers)))


def _why(row: TrialRow) -> str:
    if row.failure is not None:
        return f"{row.outcome.value}: {row.failure.value.replace('_', ' ')}"
    return row.reason if row.outcome is Outcome.MEASURED and row.reason else row.outcome.value
