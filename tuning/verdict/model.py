"""The answer of a study, as data."""

from __future__ import annotations

import enum

from scenarios.strict import StrictModel


class Kind(enum.StrEnum):
    """The possible ends of a study."""

    BETTER = "better"
    """A setting beats HiCache off at defaults; its gain has an interval that excludes zero."""
    NO_HELP = "no help"
    """HiCache off at SGLang's defaults is as good as the best: HiCache does not help this workload."""
    BASELINE_UNSUSTAINED = "baseline unsustained"
    """The baseline does not sustain the load and the winner does, so there is no ratio to give."""
    INCOMPARABLE = "incomparable"
    """The baseline has no value of the objective, as of requests that the host tier serves."""
    UNCONFIRMED = "unconfirmed"
    """The budget ended before a confirmation."""
    NONE_FEASIBLE = "none feasible"
    MEASURED = "measured"
    """Nothing restarts the engine, so what it runs was measured and compared with nothing."""


class Candidate(StrictModel):
    """One confirmed setting: its trials of fresh seeds, taken together."""

    label: str
    key: str
    trial_numbers: tuple[int, ...]
    value: float
    """Of the objective, in its unit: seconds, a share, or counts a second."""
    value_low: float | None
    value_high: float | None
    p99_s: float
    """TTFT P99 of the steady window, whatever the objective."""
    p99_low_s: float | None
    p99_high_s: float | None
    requests: int
    difference: float | None = None
    """Value - that of HiCache off at defaults, over the sessions that both played."""
    difference_low: float | None = None
    difference_high: float | None = None
    against_baseline: float | None = None
    """Value relative to HiCache off at defaults: -0.6 is 60 % lower. None where that has none, or zero."""
    against_baseline_low: float | None = None
    against_baseline_high: float | None = None
    surely_better: bool = False
    """Whether the interval of the change from the baseline lies on the better side of zero."""
    ties_with_best: bool = False
    host_pool_tokens: int | None = None


class FrontPoint(StrictModel):
    """One setting of a Pareto search that no other one beats in every goal: one trial of the search."""

    trial: int
    label: str
    key: str
    values: dict[str, float | None]
    """By the goal's expression, in its unit; None was not seen, and taken for the worst."""


class Verdict(StrictModel):
    """The answer of a study."""

    kind: Kind
    sentence: str
    rule: str = ""
    """Why the winner is not the very best one, where it is not."""
    objective: str = "ttft.p99"
    """What the values of the candidates are of."""
    winner: Candidate | None = None
    launch_command: str | None = None
    candidates: tuple[Candidate, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    """Of a Pareto search, best first by the objective."""
