"""What may be believed at the end of a study: from fresh measurements only, with intervals.

The best of many noisy trials is biased, so the search's own figures choose who is confirmed and nothing else
(design rule 10). All candidates of a confirmation played the same fresh sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.statistics import interval_of
from harness.store import Outcome, TrialRecord
from tuning.objective import TTFT_P99, Objective, front
from tuning.verdict import words
from tuning.verdict.command import launch_command
from tuning.verdict.confirmed import Confirmed, best_of, confirmations, over_equal_sessions
from tuning.verdict.model import Candidate, FrontPoint, Kind, Verdict


def decide(records: Sequence[TrialRecord], root: Path, *, baseline_key: str | None, objective: Objective) -> Verdict:
    """Draw the verdict from all records of a study; those that were cut off or at fault themselves say nothing.

    Without a baseline there was one setting, which an engine ran that nothing restarts.
    """
    judged = [r for r in records if r.outcome not in (Outcome.INTERRUPTED, Outcome.INVALID) and r.purpose != "stress"]
    if not judged:
        why = next((f": {r.reason}" for r in reversed(records) if r.reason), "")
        return Verdict(kind=Kind.UNCONFIRMED, sentence=f"nothing was measured{why}; resume with more budget")
    found = _decide(judged, root, baseline_key, objective)
    caution = words.under_stress(records, found.winner.key, objective) if found.winner else ""
    points = tuple(_point(record, objective) for record in front(judged, objective)) if objective.pareto else ()
    return found.model_copy(
        update={"sentence": found.sentence + caution, "objective": objective.metric.text, "front": points}
    )


def _decide(judged: Sequence[TrialRecord], root: Path, baseline_key: str | None, objective: Objective) -> Verdict:
    feasible = [r for r in judged if objective.feasible(r)]
    if not feasible:
        return Verdict(kind=Kind.NONE_FEASIBLE, sentence=words.why_nothing(judged, objective))
    confirmed = confirmations(judged, root, objective.metric)
    sound = {key: each for key, each in confirmed.items() if each.sound(objective)}
    best = min(feasible, key=lambda r: (r.purpose != "search", objective.order(r)))
    if not sound and best.setting.key in confirmed:
        again = [record for each in confirmed.values() for record in each.records]
        return Verdict(kind=Kind.NONE_FEASIBLE, sentence=f"{words.why_nothing(again, objective)}, when measured again")
    if baseline_key is None:
        return _measured(best, sound.get(best.setting.key), objective)
    if not sound or baseline_key not in confirmed or best.setting.key not in confirmed:
        return Verdict(
            kind=Kind.UNCONFIRMED,
            sentence=f"not confirmed: best so far is {best.setting.label} with {words.one_trial(best, objective)}, "
            "from one trial; resume with more budget to prove it",
            launch_command=launch_command(best),
        )
    finalists, equal = over_equal_sessions(sound, baseline_key)
    return _answer(equal, finalists, equal.get(baseline_key, confirmed[baseline_key]))


def _measured(best: TrialRecord, confirmed: Confirmed | None, objective: Objective) -> Verdict:
    only = "nothing restarts this engine, so no other setting was measured"
    if confirmed is None:
        said = f"{best.setting.label}: {words.one_trial(best, objective)}, from one trial; {only}"
        return Verdict(kind=Kind.MEASURED, sentence=said)
    found = candidate_of(confirmed, confirmed, ties=False)
    said = f"{found.label}: {words.figure(found, objective.metric)} over {found.requests} requests; {only}"
    return Verdict(kind=Kind.MEASURED, sentence=said, winner=found, candidates=(found,))


def _answer(sound: dict[str, Confirmed], finalists: frozenset[str], baseline: Confirmed) -> Verdict:
    best = best_of(sound[key] for key in finalists)
    tied = {key for key in finalists if sound[key].ties_with(best)}
    candidates = {key: candidate_of(each, baseline, ties=key in tied) for key, each in sound.items()}
    # The least host memory of those that tie, but a tie with the best is no proof against the baseline.
    proven = {key for key in tied if sound[key] is baseline or candidates[key].surely_better}
    eligible = proven if candidates[best.setting.key].surely_better else tied
    winner = min((sound[key] for key in eligible), key=lambda each: (each.host_pool_tokens, each.cost))
    chosen = candidates[winner.setting.key]
    ordered = sorted(candidates.values(), key=lambda candidate: sound[candidate.key].cost)
    others_tied = [candidate for candidate in ordered if candidate.ties_with_best and candidate is not chosen]
    kind, sentence = words.answer(chosen, winner, baseline, others_tied)
    return Verdict(
        kind=kind,
        sentence=sentence,
        rule="" if winner is best else words.rule(candidates[best.setting.key], best.metric),
        winner=chosen,
        launch_command=launch_command(winner.records[0]),
        candidates=tuple(ordered),
    )


def candidate_of(confirmed: Confirmed, baseline: Confirmed, *, ties: bool) -> Candidate:
    """Give the fresh trials of a setting in figures, beside those of the setting that it is compared with."""
    interval = interval_of(confirmed.statistic)
    ttft = confirmed.by(TTFT_P99)
    p99 = interval_of(ttft.statistic)
    comparable = baseline.sustained and confirmed is not baseline
    change = confirmed.change_from(baseline) if comparable else None
    difference = change.difference_interval if change else None
    relative = change.relative_interval if change else None
    effective = confirmed.records[-1].effective
    return Candidate(
        label=confirmed.setting.label,
        key=confirmed.setting.key,
        trial_numbers=tuple(r.number for r in confirmed.records),
        value=confirmed.value,
        value_low=interval.low if interval else None,
        value_high=interval.high if interval else None,
        p99_s=ttft.value,
        p99_low_s=p99.low if p99 else None,
        p99_high_s=p99.high if p99 else None,
        requests=sum(r.summary.ok + r.summary.cancelled for r in confirmed.records if r.summary),
        difference=change.difference if change else None,
        difference_low=difference.low if difference else None,
        difference_high=difference.high if difference else None,
        against_baseline=change.relative if change else None,
        against_baseline_low=relative.low if relative else None,
        against_baseline_high=relative.high if relative else None,
        surely_better=change is not None and confirmed.surely_better(change),
        ties_with_best=ties,
        host_pool_tokens=effective.host_pool_tokens if effective else None,
    )


def _point(record: TrialRecord, objective: Objective) -> FrontPoint:
    values = {goal.text: goal.value(record) for goal in objective.goals}
    return FrontPoint(trial=record.number, label=record.setting.label, key=record.setting.key, values=values)
