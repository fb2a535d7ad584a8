"""Two settings measured against each other on fresh sessions, and what may be said of the difference."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.engine.setting import Setting
from harness.errors import EngineError
from harness.lab import Lab
from harness.statistics import Change, Interval
from harness.store import Purpose, TrialRecord, read_trials
from harness.trial import run_trial
from scenarios.plan import Plan
from scenarios.strict import StrictModel
from tuning.budget import Budget
from tuning.confirm import Confirmation, Rounds, settled
from tuning.locks import alone
from tuning.objective import Objective, SessionMetric
from tuning.runs import Measure, Runs, SearchWatch
from tuning.verdict import NEGLIGIBLE, Candidate, Confirmed, candidate_of, confirmations, launch_command

COMPARE_SEED_OFFSET = 2000
"""A setting that a search has found was chosen on that search's seeds; these are others."""
PURPOSE: Purpose = "compare"

Ended = Literal["settled", "rounds", "budget", "interrupted"]


class Kind(enum.StrEnum):
    """What may be said of B against A."""

    LOWER = "lower"
    HIGHER = "higher"
    EQUAL = "equal"
    ONLY_A = "only A holds"
    ONLY_B = "only B holds"
    """The other does not run, does not sustain the load or breaks a constraint, so there is no ratio to give."""
    NEITHER = "neither holds"
    UNDECIDED = "undecided"


class Side(StrictModel):
    """One of the two settings."""

    label: str
    setting: Setting
    figures: Candidate | None = None
    """Over the sessions of all rounds; None when nothing of it may be compared."""
    why_not: str = ""
    """Why it does not hold, in one sentence; empty when it does."""
    launch_command: str | None = None


class Comparison(StrictModel):
    """compare.json: what `compare` found. `change` is B's figure relative to A's: -0.1 is 10 % lower."""

    schema_version: int = 1
    kind: Kind
    sentence: str
    objective: str
    """What the two are compared in, such as `ttft.p99`."""
    ended: Ended
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    a: Side
    b: Side


@dataclass
class Comparer:
    """Measures two settings in turn until their difference is settled, the budget ends or it is asked to stop."""

    lab: Lab
    pair: tuple[Setting, Setting]
    objective: Objective
    watch: SearchWatch
    make_plan: Callable[[int], Plan]
    seed: int
    rounds: Rounds
    until: float
    """Width of the interval of the difference that is narrow enough, such as 0.05."""
    budget_s: float | None = None
    measure: Measure = run_trial
    records: list[TrialRecord] = field(init=False)

    def run(self) -> Comparison:
        """Compare; raise EngineError when no engine starts until the user corrects something."""
        with alone(self.lab.root, self.lab.devices_name):
            self.lab.starts.end_orphans(self.lab.ledger)
            self.records = read_trials(self.lab.root)
            budget = Budget(0, self.budget_s, 2 * self.rounds.most)
            runs = Runs(self.lab, self.objective, self.watch, self._measure, budget, self.records)
            first_seed = self.seed + COMPARE_SEED_OFFSET
            Confirmation(runs, self.rounds, self.make_plan, first_seed, PURPOSE).play(self.pair, self._undecided)
        return compared(self.records, self.lab.root, self.pair, self.objective, self.until, ended=self._ended())

    def _measure(self, lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        record = self.measure(lab, number=number, purpose=purpose, setting=setting, plan=plan)
        if record.is_the_users_fault and record.failure is not None:
            last = "\n  ".join(record.failure.last_lines)
            raise EngineError(f"{record.failure.sentence}\n  {last}" if last else record.failure.sentence)
        return record

    def _undecided(self, contenders: Sequence[Setting], trials: Sequence[TrialRecord]) -> Sequence[Setting]:
        a, b = _sides(trials, self.lab.root, self.pair, self.objective.metric)
        if a is None or b is None:
            return contenders
        if not (a.sound(self.objective) and b.sound(self.objective)):
            return ()
        change = b.change_from(a)
        return () if change is not None and settled(change, self.until) else contenders

    def _ended(self) -> Ended:
        if self.lab.should_stop():
            return "interrupted"
        if not self._undecided(self.pair, self.records):
            return "settled"
        last = self.seed + COMPARE_SEED_OFFSET + self.rounds.most - 1
        played = {r.setting.key for r in self.records if (r.purpose, r.seed) == (PURPOSE, last)}
        return "rounds" if played >= {setting.key for setting in self.pair} else "budget"


def compared(
    records: Sequence[TrialRecord],
    root: Path,
    pair: tuple[Setting, Setting],
    objective: Objective,
    until: float,
    *,
    ended: Ended,
) -> Comparison:
    """Say what the fresh trials show of the second setting against the first."""
    both = _over_shared_rounds(*_sides(records, root, pair, objective.metric))
    a, b = (_side(setting, found, both[0], objective) for setting, found in zip(pair, both, strict=True))
    holds = both[0] is not None and both[1] is not None and not (a.why_not or b.why_not)
    change = both[1].change_from(both[0]) if holds and both[0] and both[1] else None
    interval = change.relative_interval if change else None
    kind = _kind(a, b, interval, until)
    return Comparison(
        kind=kind,
        sentence=_sentence(kind, a, b, change, ended, objective.metric),
        objective=objective.metric.text,
        ended=ended,
        change=change.relative if change else None,
        change_low=interval.low if interval else None,
        change_high=interval.high if interval else None,
        a=a,
        b=b,
    )


def _sides(
    records: Sequence[TrialRecord], root: Path, pair: tuple[Setting, Setting], metric: SessionMetric
) -> tuple[Confirmed | None, Confirmed | None]:
    found = confirmations(records, root, metric, purpose=PURPOSE)
    return found.get(pair[0].key), found.get(pair[1].key)


def _over_shared_rounds(a: Confirmed | None, b: Confirmed | None) -> tuple[Confirmed | None, Confirmed | None]:
    """Leave a round out that only one of them came to before the budget ended."""
    if a is None or b is None:
        return a, b
    return a.over(b.seeds), b.over(a.seeds)


def _side(setting: Setting, found: Confirmed | None, against: Confirmed | None, objective: Objective) -> Side:
    if found is None:
        return Side(label=setting.label, setting=setting)
    last = found.records[-1]
    if not found.sound(objective):
        at_fault = next((r for r in found.records if not objective.feasible(r)), last)
        broken = " and ".join(f"breaks `{name}`" for name in objective.broken(at_fault))
        why_not = at_fault.reason or broken or f"no request tells {objective.metric.text}"
        return Side(label=setting.label, setting=setting, why_not=why_not, launch_command=launch_command(last))
    figures = candidate_of(found, against or found, ties=False)
    return Side(label=setting.label, setting=setting, figures=figures, launch_command=launch_command(last))


def _kind(a: Side, b: Side, interval: Interval | None, until: float) -> Kind:
    if a.why_not and b.why_not:
        return Kind.NEITHER
    if a.why_not or b.why_not:
        holds = b if a.why_not else a
        return Kind.UNDECIDED if holds.figures is None else Kind.ONLY_B if a.why_not else Kind.ONLY_A
    if interval is None:
        return Kind.UNDECIDED
    if max(-interval.low, interval.high) <= NEGLIGIBLE:
        return Kind.EQUAL
    if interval.high < 0:
        return Kind.LOWER
    if interval.low > 0:
        return Kind.HIGHER
    return Kind.EQUAL if interval.high - interval.low <= until else Kind.UNDECIDED


def _sentence(kind: Kind, a: Side, b: Side, change: Change | None, ended: Ended, metric: SessionMetric) -> str:
    if kind is Kind.NEITHER:
        return f"Neither holds: A ({a.label}): {a.why_not}; B ({b.label}): {b.why_not}."
    if kind is Kind.ONLY_A:
        return f"Only A holds: {_figure('A', a, metric)}; B ({b.label}) does not: {b.why_not}."
    if kind is Kind.ONLY_B:
        return f"Only B holds: {_figure('B', b, metric)}; A ({a.label}) does not: {a.why_not}."
    interval = change.relative_interval if change else None
    if change is None or change.relative is None or interval is None:
        return f"Not decided: {_missing(a, b)}."
    figures = f"{_figure('B', b, metric)}; {_figure('A', a, metric)}"
    span = f"[{interval.low:+.1%}, {interval.high:+.1%}]"
    if kind is Kind.EQUAL:
        within = max(math.ceil(100 * max(abs(interval.low), abs(interval.high))), round(100 * NEGLIGIBLE))
        return f"A and B are equal within {within} %: B's {metric.title} differs by {span} from A's. {figures}."
    if kind is Kind.UNDECIDED:
        end = {"budget": "when the budget ended", "rounds": "after all rounds"}.get(ended, "so far")
        return f"Not decided {end}: B's {metric.title} differs by {span} from A's. {figures}."
    low, high = sorted((abs(interval.low), abs(interval.high)))
    return f"B is {abs(change.relative):.0%} {kind} [{low:.0%}, {high:.0%}] than A in {metric.title}. {figures}."


def _figure(name: str, side: Side, metric: SessionMetric) -> str:
    found = side.figures
    if found is None:
        return f"{name} ({side.label}) was not measured"
    return f"{name} ({side.label}) {metric.unit.say(found.value)} {metric.unit.span(found.value_low, found.value_high)}"


def _missing(a: Side, b: Side) -> str:
    missing = [name for name, side in (("A", a), ("B", b)) if side.figures is None and not side.why_not]
    if not missing:
        return "there are too few sessions for an interval; play more of them with --sessions"
    return f"{' and '.join(missing)} could not be measured on fresh sessions"
