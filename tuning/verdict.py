"""What may be believed at the end of a study: from fresh measurements only, with intervals.

The best of many noisy trials is biased, so the search's own figures choose who is confirmed and nothing else
(design rule 10). All candidates of a confirmation played the same fresh sessions.
"""

from __future__ import annotations

import enum
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from harness.engine.spec import PUBLIC_PORT
from harness.statistics import Interval, Sessions
from harness.store import Outcome, TrialRecord
from scenarios.strict import StrictModel
from tuning.answers import answers_of, change, sessions_of
from tuning.objective import LAUNCHED, Objective

NEGLIGIBLE = 0.02
"""Settings whose P99 surely differs by less than this are equal for every user."""


class Kind(enum.StrEnum):
    """The possible ends of a study."""

    BETTER = "better"
    """A setting beats HiCache off at defaults; its gain has an interval that excludes zero."""
    NO_HELP = "no help"
    """HiCache off at SGLang's defaults is as good as the best: HiCache does not help this workload."""
    BASELINE_UNSUSTAINED = "baseline unsustained"
    """The baseline does not sustain the load and the winner does, so there is no ratio to give."""
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
    p99_s: float
    p99_low_s: float | None
    p99_high_s: float | None
    requests: int
    against_baseline: float | None = None
    """P99 relative to HiCache off at defaults: -0.6 is 60 % lower."""
    against_baseline_low: float | None = None
    against_baseline_high: float | None = None
    ties_with_best: bool = False
    host_pool_tokens: int | None = None

    @property
    def surely_better(self) -> bool:
        """Whether the interval of the change from the baseline lies below zero."""
        return self.against_baseline_high is not None and self.against_baseline_high < 0


class Verdict(StrictModel):
    """The answer of a study."""

    kind: Kind
    sentence: str
    winner: Candidate | None = None
    launch_command: str | None = None
    candidates: tuple[Candidate, ...] = ()


class Confirmed:
    """The fresh trials of one setting and their requests."""

    def __init__(self, records: Sequence[TrialRecord], root: Path) -> None:
        self.records = records
        self.setting = records[0].setting
        self._answers = {r.seed: answers_of(root, r) for r in records}

    @property
    def seeds(self) -> frozenset[int]:
        """The seeds that it was measured on."""
        return frozenset(self._answers)

    @property
    def sustained(self) -> bool:
        """Whether every one of its trials may be compared."""
        return all(record.usable for record in self.records)

    def sessions(self) -> Sessions:
        """Return the TTFT of its counted requests by session; sessions of different seeds are different ones."""
        return sessions_of(pd.concat(self._answers.values(), ignore_index=True))

    def change_from(self, other: Confirmed) -> tuple[float, Interval | None] | None:
        """Return this P99 relative to `other`'s over the sessions that both answered; None when there are none."""
        mine, theirs = (pd.concat(each._answers.values(), ignore_index=True) for each in (self, other))
        return change(mine, theirs)


def decide(records: Sequence[TrialRecord], root: Path, *, baseline_key: str | None, objective: Objective) -> Verdict:
    """Draw the verdict from all records of a study; those that were cut off or at fault themselves say nothing.

    Without a baseline there was one setting, which an engine ran that nothing restarts.
    """
    judged = [r for r in records if r.outcome not in (Outcome.INTERRUPTED, Outcome.INVALID)]
    if not judged:
        why = next((f": {r.reason}" for r in reversed(records) if r.reason), "")
        return Verdict(kind=Kind.UNCONFIRMED, sentence=f"nothing was measured{why}; resume with more budget")
    feasible = [r for r in judged if objective.feasible(r)]
    if not feasible:
        return Verdict(kind=Kind.NONE_FEASIBLE, sentence=_why_nothing(judged, objective))
    confirmed = _confirmed(judged, root)
    sound = {k: c for k, c in confirmed.items() if c.sustained and all(map(objective.feasible, c.records))}
    best = min(feasible, key=lambda r: (r.purpose != "search", r.p99_s))
    if not sound and best.setting.key in confirmed:
        again = [record for each in confirmed.values() for record in each.records]
        return Verdict(kind=Kind.NONE_FEASIBLE, sentence=f"{_why_nothing(again, objective)}, when measured again")
    if baseline_key is None:
        return _measured(best, sound.get(best.setting.key))
    if not sound or baseline_key not in confirmed or best.setting.key not in confirmed:
        return Verdict(
            kind=Kind.UNCONFIRMED,
            sentence=f"not confirmed: best so far is {best.setting.label} with TTFT P99 {best.p99_s:.3f} s, from one "
            "trial; resume with more budget to prove it",
            launch_command=launch_command(best),
        )
    sound = _over_equal_sessions(sound, root)
    return _answer(sound, sound.get(baseline_key, confirmed[baseline_key]))


def _confirmed(judged: Iterable[TrialRecord], root: Path) -> dict[str, Confirmed]:
    """Group the confirmation by setting; of several trials on one seed the last counts, as it was the second try."""
    last = {(record.setting.key, record.seed): record for record in judged if record.purpose == "confirm"}
    groups: dict[str, list[TrialRecord]] = defaultdict(list)
    for (key, _), record in last.items():
        groups[key].append(record)
    return {key: Confirmed(group, root) for key, group in groups.items()}


def _over_equal_sessions(sound: dict[str, Confirmed], root: Path) -> dict[str, Confirmed]:
    """Keep the seeds that all settings were measured on, as far as there are any (design rule 13)."""
    shared = frozenset.intersection(*(confirmed.seeds for confirmed in sound.values()))
    if not shared:
        return sound
    return {key: Confirmed([r for r in c.records if r.seed in shared], root) for key, c in sound.items()}


def launch_command(record: TrialRecord) -> str | None:
    """Return the command by which a user runs the record's setting; None when nothing was launched for it."""
    words = record.command or _on_the_public_port(record.argv)
    variables = [f"{name}={value}" for name, value in record.env.items()]
    return shlex.join(["env", *variables, *words] if variables else words) if words else None


def _on_the_public_port(argv: Sequence[str]) -> list[str]:
    """Return the launch of a record of before the user's command was kept, with the port for users."""
    words = list(argv)
    if "--port" in words:
        words[words.index("--port") + 1] = str(PUBLIC_PORT)
    return words


def _measured(best: TrialRecord, confirmed: Confirmed | None) -> Verdict:
    only = "nothing restarts this engine, so no other setting was measured"
    if confirmed is None:
        said = f"{best.setting.label}: TTFT P99 {best.p99_s:.3f} s, from one trial; {only}"
        return Verdict(kind=Kind.MEASURED, sentence=said)
    found = _candidate(confirmed, confirmed, ties=False)
    p99 = f"TTFT P99 {found.p99_s:.3f} s {_bracket(found.p99_low_s, found.p99_high_s)}"
    said = f"{found.label}: {p99} over {found.requests} requests; {only}"
    return Verdict(kind=Kind.MEASURED, sentence=said, winner=found, candidates=(found,))


def _answer(sound: dict[str, Confirmed], baseline: Confirmed) -> Verdict:
    p99s = {key: confirmed.sessions().quantile(0.99) for key, confirmed in sound.items()}
    best = sound[min(p99s, key=p99s.__getitem__)]
    tied = {key for key, confirmed in sound.items() if confirmed is best or _ties(confirmed, best)}
    candidates = {key: _candidate(c, baseline, ties=key in tied) for key, c in sound.items()}
    # The least host memory of those that tie, but a tie with the best is no proof against the baseline.
    proven = {key for key in tied if sound[key] is baseline or candidates[key].surely_better}
    eligible = proven if candidates[best.setting.key].surely_better else tied
    winner = min((sound[key] for key in eligible), key=lambda c: (_host_pool(c), p99s[c.setting.key]))
    chosen = candidates[winner.setting.key]
    ordered = sorted(candidates.values(), key=lambda candidate: candidate.p99_s)
    kind, sentence = _words(chosen, winner, baseline, [c for c in ordered if c.ties_with_best and c is not chosen])
    return Verdict(
        kind=kind,
        sentence=sentence,
        winner=chosen,
        launch_command=launch_command(winner.records[0]),
        candidates=tuple(ordered),
    )


def _words(
    chosen: Candidate, winner: Confirmed, baseline: Confirmed, others_tied: Sequence[Candidate]
) -> tuple[Kind, str]:
    ties = f"; it ties with {len(others_tied)} more and takes the least host memory of them" if others_tied else ""
    p99 = f"TTFT P99 {chosen.p99_s:.3f} s {_bracket(chosen.p99_low_s, chosen.p99_high_s)}"
    if winner is baseline:
        return (
            Kind.NO_HELP,
            f"HiCache does not help this workload: off at SGLang's defaults gives {p99}{ties}",
        )
    if not baseline.sustained:
        reason = next(r.reason for r in baseline.records if not r.usable)
        return (
            Kind.BASELINE_UNSUSTAINED,
            f"{chosen.label} sustains the load with {p99}; HiCache off at SGLang's defaults does not ({reason}){ties}",
        )
    low, high, change = chosen.against_baseline_low, chosen.against_baseline_high, chosen.against_baseline
    if change is None or low is None or high is None or not chosen.surely_better:
        return (
            Kind.NO_HELP,
            f"no setting is surely better than HiCache off at SGLang's defaults; {chosen.label} gives {p99}",
        )
    gain = f"{-change:.0%} lower [{-high:.0%}, {-low:.0%}]"
    return Kind.BETTER, f"{chosen.label}: {p99}, {gain} than HiCache off at SGLang's defaults{ties}"


def _candidate(confirmed: Confirmed, baseline: Confirmed, *, ties: bool) -> Candidate:
    sessions = confirmed.sessions()
    interval = sessions.interval(0.99)
    change, spread = None, None
    if baseline.sustained and confirmed is not baseline and (found := confirmed.change_from(baseline)):
        change, spread = found
    effective = confirmed.records[-1].effective
    return Candidate(
        label=confirmed.setting.label,
        key=confirmed.setting.key,
        trial_numbers=tuple(r.number for r in confirmed.records),
        p99_s=sessions.quantile(0.99),
        p99_low_s=interval.low if interval else None,
        p99_high_s=interval.high if interval else None,
        requests=sum(r.summary.ok + r.summary.cancelled for r in confirmed.records if r.summary),
        against_baseline=change,
        against_baseline_low=spread.low if spread else None,
        against_baseline_high=spread.high if spread else None,
        ties_with_best=ties,
        host_pool_tokens=effective.host_pool_tokens if effective else None,
    )


def _ties(confirmed: Confirmed, best: Confirmed) -> bool:
    """Whether the interval of the difference does not exclude that both are equal for every user."""
    found = confirmed.change_from(best)
    if found is None:
        return False
    _, interval = found
    return interval is None or interval.low <= NEGLIGIBLE


def _host_pool(confirmed: Confirmed) -> float:
    """Return host tokens of the setting: 0 without HiCache, infinite when the engine did not say."""
    if not confirmed.setting.hicache:
        return 0.0
    effective = confirmed.records[-1].effective
    tokens = effective.host_pool_tokens if effective else None
    return float("inf") if tokens is None else float(tokens)


def _bracket(low: float | None, high: float | None) -> str:
    return f"[{low:.3f}, {high:.3f}]" if low is not None and high is not None else "(no interval)"


def _why_nothing(records: Sequence[TrialRecord], objective: Objective) -> str:
    broken: dict[str, int] = defaultdict(int)
    for record in records:
        for name in objective.broken(record):
            broken[name] += 1
    worst = max(broken, key=broken.__getitem__)
    said = next((r.reason for r in records if r.reason), "")
    why = said if worst == LAUNCHED and said else f"{broken[worst]} of {len(records)} trials broke `{worst}`"
    return f"no setting of {len({r.setting.key for r in records})} is feasible: {why}"
