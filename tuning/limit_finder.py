"""Finds the highest session rate of one setting: probes rates on the live engine until the answer is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from harness.draft import Watch
from harness.engine.setting import Setting
from harness.errors import EngineError, LoadError
from harness.lab import Lab
from harness.store import Outcome, Purpose, TrialRecord, next_number, read_trials
from harness.trial import run_trial
from scenarios.plan import Plan
from scenarios.strict import StrictModel
from tuning.limit import Bisection, Bracket, Probe
from tuning.locks import alone
from tuning.objective import Objective
from tuning.runs import Measure

INVALID_TRIES = 2

Ended = Literal["found", "none kept", "none missed", "budget", "interrupted"]


class ProbeResult(StrictModel):
    """One probe in figures; latencies in seconds, None where nothing was answered."""

    trial: int
    rate_per_s: float
    seed: int
    meets: bool
    why_not: str
    p50_s: float | None
    p99_s: float | None
    p99_low_s: float | None
    p99_high_s: float | None
    requests_per_s: float | None
    output_tokens_per_s: float | None


class Limit(StrictModel):
    """limit.json: what `find-limit` found. Rates are sessions that arrive in a second."""

    schema_version: int = 1
    setting: Setting
    level: tuple[str, ...]
    """The service level: constraints, all of which a rate must keep."""
    ended: Ended
    meets_per_s: float | None
    """The highest rate that was kept, with other sessions too when `ended` is `found`."""
    misses_per_s: float | None
    probes: tuple[ProbeResult, ...]

    @property
    def best(self) -> ProbeResult | None:
        """Return the slowest probe of the highest rate that is kept, which promises the least."""
        kept = [probe for probe in self.probes if probe.rate_per_s == self.meets_per_s and probe.p99_s is not None]
        return max(kept, key=lambda probe: probe.p99_s or 0.0, default=None)

    @property
    def sentence(self) -> str:
        """Say the answer in one sentence."""
        level = " and ".join(self.level)
        best = self.best
        if self.meets_per_s is None or best is None:
            lowest = f", not even {self.misses_per_s:g} sessions/s" if self.misses_per_s is not None else ""
            return f"No rate that was probed keeps {level}{lowest}."
        figures = f"TTFT P99 {best.p99_s:.3f} s, {best.requests_per_s:.2f} requests/s"
        kept = f"{self.meets_per_s:g} sessions/s keep {level} ({figures})"
        if self.misses_per_s is None:
            return f"{kept}; no rate that was probed misses it, so the limit lies at this rate or above."
        confirmed = "" if self.ended == "found" else "; not confirmed with other sessions yet"
        return f"{kept}, {self.misses_per_s:g} do not{confirmed}."


class LimitWatch(Watch, Protocol):
    """Whoever shows a running search for a limit to people."""

    def probe_begins(self, number: int, rate_per_s: float, known: Bracket) -> None:
        """Tell which rate is probed next."""

    def probe_ends(self, probe: ProbeResult, seconds: float) -> None:
        """Tell how it went."""


@dataclass
class LimitFinder:
    """Probes one setting until the limit is known, the budget ends or it is asked to stop."""

    lab: Lab
    setting: Setting
    objective: Objective
    how: Bisection
    watch: LimitWatch
    make_plan: Callable[[float, int], Plan]
    """Makes the sessions for a rate and a seed: the same sessions for every rate, only closer together."""
    budget_s: float | None = None
    measure: Measure = run_trial
    records: list[TrialRecord] = field(init=False)

    def run(self) -> Limit:
        """Find the limit; raise EngineError when no engine starts, LoadError when the client cannot keep up."""
        started_s = time.monotonic()
        with alone(self.lab.root, self.lab.devices_name):
            self.lab.starts.end_orphans(self.lab.ledger)
            self.records = read_trials(self.lab.root)
            self.lab.followed_by = self.setting  # only the rate differs, so one engine serves all probes
            try:
                return self._find(started_s)
            finally:
                self.lab.end_kept()

    def _find(self, started_s: float) -> Limit:
        while not self.lab.should_stop():
            following = self.how.next_probe(self._probes())
            if following is None:
                return self._limit(_answer(Bracket.of(self._probes())))
            if self.budget_s is not None and time.monotonic() - started_s + self._probe_s() > self.budget_s:
                return self._limit("budget")
            self._probe(*following)
        return self._limit("interrupted")

    def _probe(self, rate_per_s: float, seed: int) -> None:
        """Run one load; again when the measurement was at fault, and raise LoadError when it is at fault again."""
        for _ in range(INVALID_TRIES):
            number = next_number(self.lab.root)
            self.watch.probe_begins(number, rate_per_s, Bracket.of(self._probes()))
            purpose: Purpose = "limit"
            record = self.measure(
                self.lab, number=number, purpose=purpose, setting=self.setting, plan=self.make_plan(rate_per_s, seed)
            )
            self.records.append(record)
            self._check_launch(record)
            self.watch.probe_ends(self._result(record), record.duration_s)
            if record.outcome is not Outcome.INVALID:
                return
        raise LoadError(f"{rate_per_s:g} sessions/s could not be measured: {record.reason}")

    def _check_launch(self, record: TrialRecord) -> None:
        """Raise EngineError when the engine never came to a load: no rate can mend that."""
        if record.failure is not None and record.summary is None:
            last = "\n  ".join(record.failure.last_lines)
            raise EngineError(f"{record.failure.sentence}\n  {last}" if last else record.failure.sentence)

    def _probes(self) -> list[Probe]:
        """Read the records as probes; what says nothing of the engine is left out."""
        return [
            Probe(record.rate_per_s, record.seed, self.objective.feasible(record), self._why_not(record))
            for record in self.records
            if record.rate_per_s is not None and record.outcome not in (Outcome.INVALID, Outcome.INTERRUPTED)
        ]

    def _probe_s(self) -> float:
        return max((record.duration_s for record in self.records[-3:]), default=0.0)

    def _why_not(self, record: TrialRecord) -> str:
        return record.reason or "; ".join(f"misses {name}" for name in self.objective.broken(record))

    def _result(self, record: TrialRecord) -> ProbeResult:
        summary = record.summary
        steady = summary.steady if summary else None
        return ProbeResult(
            trial=record.number,
            rate_per_s=record.rate_per_s or 0.0,
            seed=record.seed,
            meets=self.objective.feasible(record),
            why_not=self._why_not(record),
            p50_s=steady.p50_s if steady else None,
            p99_s=steady.p99_s if steady else None,
            p99_low_s=steady.p99_low_s if steady else None,
            p99_high_s=steady.p99_high_s if steady else None,
            requests_per_s=summary.requests_per_s if summary else None,
            output_tokens_per_s=summary.output_tokens_per_s if summary else None,
        )

    def _limit(self, ended: Ended) -> Limit:
        known = Bracket.of(self._probes())
        return Limit(
            setting=self.setting,
            level=tuple(constraint.text for constraint in self.objective.constraints),
            ended=ended,
            meets_per_s=known.meets_per_s,
            misses_per_s=known.misses_per_s,
            probes=tuple(map(self._result, _by_rate(self.records))),
        )


def _by_rate(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return sorted((r for r in records if r.rate_per_s is not None), key=lambda r: (r.rate_per_s or 0.0, r.number))


def _answer(known: Bracket) -> Ended:
    if known.meets_per_s is None:
        return "none kept"
    return "none missed" if known.misses_per_s is None else "found"
