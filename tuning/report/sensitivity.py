"""Which flags decide, and what each does alone.

Importance is Optuna's conditional PED-ANOVA: how differently a flag is distributed among the best quarter of the
settings than among all. It looks at ranks alone, so settings that failed count as bad without a made-up P99, and it
knows flags that exist only with HiCache on. Few noisy trials make any flag look important by chance, so each
importance is held against what the same trials give when their results are shuffled.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import cast

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FixedTrial, FrozenTrial, create_trial

from harness.engine.setting import FlagValue
from harness.statistics import Floats
from harness.store import Outcome
from scenarios.strict import StrictModel
from tuning.report.rows import TrialRow, values_of
from tuning.report.words import UNKNOWN
from tuning.space import SGLANG_DEFAULT, Dimension, Space, setting_of

BEST_SHARE = 0.25
FEWEST_BEST = 5
"""Settings in the best share that PED-ANOVA needs to be stable, as Optuna's documentation says."""
FEWEST_TRIALS = math.ceil(FEWEST_BEST / BEST_SHARE)
SHUFFLES = 99
CHANCE = 0.95
"""A flag stands out when it beats this share of the shuffles."""


class Importance(StrictModel):
    """How much one flag tells the best settings from the others."""

    flag: str
    share: float
    """Of the importance of all flags together."""
    by_chance: float
    """The share that it reaches in one of twenty shuffles, in which no flag means anything."""

    @property
    def stands_out(self) -> bool:
        """Whether it is more than chance gives."""
        return self.share > self.by_chance


class Point(StrictModel):
    """One setting of the search at one value of a flag."""

    value: FlagValue
    trial: int
    p99_s: float | None
    """None where there is none to compare: it failed, or did not sustain the load."""
    feasible: bool
    alone: bool
    """Whether it differs from the leading setting in this flag only, or is that setting."""


class Slice(StrictModel):
    """TTFT P99 of the search against one flag."""

    flag: str
    points: tuple[Point, ...]

    @property
    def alone(self) -> tuple[Point, ...]:
        """The leading setting and those with a P99 that differ from it in this flag only; empty without such."""
        found = tuple(point for point in self.points if point.alone and point.p99_s is not None)
        return found if len(found) > 1 else ()


class Sensitivity(StrictModel):
    """What the search says of the flags, from its own sessions: hints for a reader, no part of the verdict."""

    trials: int = 0
    """Settings that importance rests on."""
    best: int = 0
    """How many of them count as the best: a quarter, or all that are feasible where these are fewer."""
    importance: tuple[Importance, ...] = ()
    """Of every flag that was varied, the largest first; empty when it cannot be told."""
    why_none: str = ""
    """Why there is no importance; empty when there is."""
    slices: tuple[Slice, ...] = ()


def sensitivity(rows: Sequence[TrialRow], space: Space, leading: str | None, *, maximised: bool = False) -> Sensitivity:
    """Judge the flags of `space` by the search's trials; `leading` is the key of the setting that slices start from.

    `maximised` says whether more of the objective is better.
    """
    searched = [row for row in rows if row.purpose == "search"]
    told = [row for row in searched if row.outcome not in (Outcome.INVALID, Outcome.INTERRUPTED)]
    judged = [_with_defaults(row, space) for row in told]
    varied = [d for d in space.dimensions if len({row.values.get(d.name) for row in judged} - {None}) > 1]
    why_none = _why_none(judged, varied)
    return Sensitivity(
        trials=len(judged),
        best=_best(judged),
        importance=() if why_none else _importance(judged, varied, maximised),
        why_none=why_none,
        slices=tuple(_slice(dimension.name, judged, leading) for dimension in varied),
    )


def value_text(value: FlagValue | None) -> str:
    """Write a flag's value as the user would."""
    if value is None:
        return UNKNOWN
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _with_defaults(row: TrialRow, space: Space) -> TrialRow:
    """Name the flags that the search left to SGLang where it could have given them: that is a choice like others."""
    values: dict[str, FlagValue] = dict(row.values)
    for dimension in space.dimensions:
        name, choices = dimension.name, dimension.choices
        if SGLANG_DEFAULT in choices and values.get(name) not in choices and dimension.exists(values):
            others = setting_of({other: value for other, value in row.values.items() if other != name})
            if values_of(others).get(name) == row.values.get(name):
                values[name] = SGLANG_DEFAULT
    return row.model_copy(update={"values": values})


def _why_none(judged: Sequence[TrialRow], varied: Sequence[Dimension]) -> str:
    feasible = sum(row.feasible for row in judged)
    if not varied:
        return "no flag had more than one value in the search"
    if len(judged) < FEWEST_TRIALS:
        return (
            f"the search judged {len(judged)} settings, and fewer than {FEWEST_TRIALS} cannot tell a flag that decides "
            "from luck; search more (--trials)"
        )
    if feasible < FEWEST_BEST:
        return f"only {feasible} of {len(judged)} settings are feasible, too few to say what the good ones share"
    return ""


def _best(judged: Sequence[TrialRow]) -> int:
    return min(math.ceil(BEST_SHARE * len(judged)), sum(row.feasible for row in judged))


def _importance(judged: Sequence[TrialRow], varied: Sequence[Dimension], maximised: bool) -> tuple[Importance, ...]:
    study = optuna.create_study()
    study.add_trials([_frozen(_params(row, varied)) for row in judged])
    # Ranks are all that counts: what is infeasible comes after everything that is not.
    sign = -1.0 if maximised else 1.0
    costs = [sign * row.value if row.feasible and row.value is not None else None for row in judged]
    worst = 1.0 + max(cost for cost in costs if cost is not None)
    results = np.array([worst if cost is None else cost for cost in costs])
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_best(judged) / len(judged))
    found = _shares(study, evaluator, results)
    draw = np.random.default_rng(0)
    shuffled = [_shares(study, evaluator, draw.permutation(results)) for _ in range(SHUFFLES)]
    return tuple(
        Importance(
            flag=flag, share=share, by_chance=float(np.quantile([each.get(flag, 0.0) for each in shuffled], CHANCE))
        )
        for flag, share in sorted(found.items(), key=lambda item: -item[1])
    )


Params = dict[str, tuple[FlagValue, BaseDistribution]]


def _params(row: TrialRow, varied: Sequence[Dimension]) -> Params:
    """Return the flags that the setting gives, as Optuna asked for them."""
    found: Params = {}
    for dimension in varied:
        if dimension.name in row.values:
            asked = FixedTrial({dimension.name: row.values[dimension.name]})
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)
                    dimension.suggest(cast("optuna.Trial", asked))  # it answers the same questions
            except (UserWarning, ValueError):
                continue  # a value of before a resume changed the range
            found[dimension.name] = (row.values[dimension.name], asked.distributions[dimension.name])
    return found


def _frozen(params: Params) -> FrozenTrial:
    return create_trial(
        value=0.0,
        params={name: value for name, (value, _) in params.items()},
        distributions={name: distribution for name, (_, distribution) in params.items()},
    )


def _shares(study: optuna.Study, evaluator: PedAnovaImportanceEvaluator, results: Floats) -> dict[str, float]:
    """Return each flag's share of the importance when `results` are those of the study's trials, in their order."""
    with warnings.catch_warnings():
        # Less is better here, as it takes to be; a trial that is alone in having or lacking a flag is left out.
        warnings.simplefilter("ignore", UserWarning)
        return get_param_importances(study, evaluator=evaluator, target=lambda trial: float(results[trial.number]))


def _slice(flag: str, judged: Sequence[TrialRow], leading: str | None) -> Slice:
    leader = next((row for row in judged if row.key == leading and row.feasible), None)
    points = [
        Point(
            value=row.values[flag],
            trial=row.number,
            p99_s=row.ttft.p99_s if row.ttft else None,
            feasible=row.feasible,
            alone=leader is not None and _differ(row, leader) <= {flag},
        )
        for row in judged
        if flag in row.values
    ]
    return Slice(flag=flag, points=tuple(sorted(points, key=lambda point: (_order(point.value), point.trial))))


def _differ(one: TrialRow, other: TrialRow) -> set[str]:
    """Name the flags that differ; those that exist on one side only because HiCache is on there do not count."""
    names = one.values.keys() | other.values.keys()
    if one.hicache != other.hicache:
        names = {name for name in names if not _needs_hicache(name)}
    return {name for name in names if one.values.get(name) != other.values.get(name)}


def _needs_hicache(name: str) -> bool:
    return name.startswith(("hicache_", "hicache-")) or name == "transfer"


def _order(value: FlagValue) -> tuple[bool, float, str]:
    """Sort numbers by size and words by name."""
    is_word = isinstance(value, str)
    return (is_word, 0.0 if is_word else float(value), str(value))
