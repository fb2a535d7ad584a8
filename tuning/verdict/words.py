"""A verdict in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from harness.store import Outcome, TrialRecord
from tuning.objective import LAUNCHED, Objective, SessionMetric, sustained_per_s
from tuning.stress import LOAD
from tuning.verdict.confirmed import NEGLIGIBLE, Confirmed
from tuning.verdict.model import Candidate, Kind

BASELINE = "HiCache off at SGLang's defaults"


def figure(candidate: Candidate, metric: SessionMetric) -> str:
    """Say a candidate's value with its interval."""
    span = metric.unit.span(candidate.value_low, candidate.value_high)
    return f"{metric.title} {metric.unit.say(candidate.value)} {span}"


def one_trial(record: TrialRecord, objective: Objective) -> str:
    """Say the value of one trial, which has no interval of its own here."""
    value = objective.value(record)
    return f"{objective.metric.title} {'-' if value is None else objective.metric.unit.say(value)}"


def answer(
    chosen: Candidate, winner: Confirmed, baseline: Confirmed, others_tied: Sequence[Candidate]
) -> tuple[Kind, str]:
    """Say who won, and by how much."""
    ties = f"; it ties with {len(others_tied)} more and takes the least host memory of them" if others_tied else ""
    said = figure(chosen, winner.metric)
    if winner is baseline:
        return Kind.NO_HELP, f"HiCache does not help this workload: off at SGLang's defaults gives {said}{ties}"
    if not baseline.sustained:
        return Kind.BASELINE_UNSUSTAINED, (
            f"{chosen.label} sustains the load with {said}; {BASELINE} does not {_why_unsustained(baseline)}{ties}"
        )
    if not baseline.known:
        return Kind.INCOMPARABLE, f"{chosen.label}: {said}{ties}; {BASELINE} has no value to compare it with"
    if not chosen.surely_better:
        return Kind.NO_HELP, f"no setting is surely better than {BASELINE}; {chosen.label} gives {said}"
    return Kind.BETTER, f"{chosen.label}: {said}{_gain(chosen, winner.metric)}{ties}"


def rule(best: Candidate, metric: SessionMetric) -> str:
    """Say by which rule another setting than the very best one is recommended."""
    return (
        f"the rule: of the settings that the confirmation cannot tell to be more than {NEGLIGIBLE:.0%} worse than the "
        f"best ({best.label}: {figure(best, metric)}), the one with the least host memory"
    )


def under_stress(records: Iterable[TrialRecord], key: str, objective: Objective) -> str:
    """Say how the setting of `key` bore more load, as a clause; empty when that was not measured."""
    told = [
        record
        for record in records
        if (record.purpose, record.setting.key) == ("stress", key)
        and record.outcome not in (Outcome.INTERRUPTED, Outcome.INVALID)
    ]
    if not told:
        return ""
    last = told[-1]
    if not last.usable:
        return f"; it does not sustain {LOAD} ({last.reason})"
    if broken := objective.broken(last):
        return f"; at {LOAD} it breaks {' and '.join(f'`{name}`' for name in broken)}"
    return f"; it holds at {LOAD}: {one_trial(last, objective)}"


def why_nothing(records: Sequence[TrialRecord], objective: Objective) -> str:
    """Say why no setting may win: in the engine's words, or by the bound that most trials broke."""
    broken: dict[str, int] = defaultdict(int)
    for record in records:
        for name in objective.broken(record):
            broken[name] += 1
    worst = max(broken, key=broken.__getitem__)
    said = next((r.reason for r in records if r.reason), "")
    why = said if worst == LAUNCHED and said else f"{broken[worst]} of {len(records)} trials broke `{worst}`"
    return f"no setting of {len({r.setting.key for r in records})} is feasible: {why}{_most_sustained(records)}"


def _gain(chosen: Candidate, metric: SessionMetric) -> str:
    low, high, change = chosen.against_baseline_low, chosen.against_baseline_high, chosen.against_baseline
    if change is not None and low is not None and high is not None:
        if metric.maximised:
            return f", {change:.0%} higher [{low:.0%}, {high:.0%}] than {BASELINE}"
        return f", {-change:.0%} lower [{-high:.0%}, {-low:.0%}] than {BASELINE}"
    # A baseline that is zero, as of requests that meet a level, is no measure of others.
    span = metric.unit.span(chosen.difference_low, chosen.difference_high)
    theirs = metric.unit.say(chosen.value - (chosen.difference or 0.0))
    return f" against {theirs} with {BASELINE}, a difference of {span}"


def _why_unsustained(baseline: Confirmed) -> str:
    at_fault = next(record for record in baseline.records if not record.usable)
    rate = _rate([sustained_per_s(record) for record in baseline.records])
    return f"({at_fault.reason}){f' and answers {rate}' if rate else ''}"


def _most_sustained(records: Sequence[TrialRecord]) -> str:
    rate = _rate(map(sustained_per_s, records))
    return f"; at most {rate} were answered" if rate else ""


def _rate(rates: Iterable[float | None]) -> str:
    known = [rate for rate in rates if rate is not None]
    return f"{max(known):.2f} requests/s" if known else ""
