"""What a night means: whether production got slower than on the last good night, and from what.

A night that looks slower is measured again on the same sessions, and only the repeat counts: the first measurement is
the one that was picked for being slow (design rule 10). Slower by more than the threshold is said only when the whole
interval of the repeat's change says so; everything else that looked slower is noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.engine.setting import Setting
from harness.statistics import Floats, Interval, Sessions, draws
from harness.store import TrialRecord
from harness.telemetry.nightly_exporter import Measured
from tuning.answers import change, sessions_of
from tuning.nightly.conditions import Difference, cause_of, in_words
from tuning.nightly.history import NightRecord

NOISE = "noise"
P99 = 0.99
GOOD, REGRESSION, NO_DATA, FAILED = "good", "regression", "no data", "failed"


@dataclass(frozen=True)
class Run:
    """One setting measured once on every seed of the job."""

    setting: Setting
    records: tuple[TrialRecord, ...]
    answers: pd.DataFrame
    """As `tuning.answers` has them."""
    falls_short: str
    """Why its P99 may not be compared, or what it breaks; empty when it is sound."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What happened on the machine under its loads that may have changed the figures."""
        said = (remark for record in self.records if record.conditions for remark in record.conditions.remarks)
        return tuple(dict.fromkeys(said))

    @property
    def figures(self) -> Measured | None:
        """Its P99 and what it leaves free; None when its P99 means nothing."""
        if self.answers.empty or not all(record.usable for record in self.records):
            return None
        sessions = sessions_of(self.answers)
        interval = sessions.interval(P99)
        hits = [record.cache.hit_rate for record in self.records if record.cache and record.cache.hit_rate is not None]
        return Measured(
            setting=self.setting.label,
            ttft_p99_s=sessions.quantile(P99),
            low_s=interval.low if interval else None,
            high_s=interval.high if interval else None,
            headroom_bytes=dict(self._headroom()),
            cached_ratio=sum(hits) / len(hits) if hits else None,
        )

    def _headroom(self) -> Iterator[tuple[str, int]]:
        for kind in ("device", "host", "cgroup"):
            rooms = [getattr(record.headroom, f"{kind}_bytes") for record in self.records if record.headroom]
            if known := [room for room in rooms if room is not None]:
                yield kind, min(known)


@dataclass(frozen=True)
class Reference:
    """The good night that tonight is compared with."""

    night: NightRecord
    answers: pd.DataFrame
    differences: tuple[Difference, ...]
    """What is not as it was then."""
    same_sessions: bool


@dataclass(frozen=True)
class Change:
    """P99 relative to another night's: 0.2 is 20 % slower."""

    ratio: float
    interval: Interval | None

    def is_beyond(self, threshold: float) -> bool:
        """Whether it looks slower than allowed."""
        return self.ratio > threshold

    def is_surely_beyond(self, threshold: float) -> bool:
        """Whether the whole interval is slower than allowed."""
        return self.interval is not None and self.interval.low > threshold

    def __str__(self) -> str:
        span = f" [{self.interval.low:+.0%}, {self.interval.high:+.0%}]" if self.interval else ""
        return f"{self.ratio:+.0%}{span}"


@dataclass(frozen=True)
class Judgement:
    """How a night ended, and why."""

    outcome: str
    """One of OUTCOMES."""
    sentence: str
    cause: str | None = None
    """One of CAUSES, where production looked slower."""
    change: Change | None = None


def change_since(answers: pd.DataFrame, reference: Reference) -> Change | None:
    """Compare over the sessions that both nights answered, or as a whole when they are different ones."""
    if answers.empty or reference.answers.empty:
        return None
    if reference.same_sessions:
        found = change(answers, reference.answers)
        if found is not None:
            return Change(*found)
    return _of_other_sessions(sessions_of(answers), sessions_of(reference.answers))


def needs_repeat(run: Run, reference: Reference | None, threshold: float) -> bool:
    """Whether production looks worse than on the good night, so that it must be measured again."""
    if reference is None:
        return False
    found = None if run.falls_short else change_since(run.answers, reference)
    return bool(run.falls_short) or (found is not None and found.is_beyond(threshold))


def judge(run: Run, repeat: Run | None, reference: Reference | None, threshold: float) -> Judgement:
    """Judge production; `repeat` is what was measured again where `needs_repeat`, None when the budget had ended."""
    label = run.setting.label
    if reference is None:
        return _without_comparison(run)
    since = f"the good night of {reference.night.started_at:%Y-%m-%d}"
    if not needs_repeat(run, reference, threshold):
        found = change_since(run.answers, reference)
        return Judgement(GOOD, f"{_p99(run)}; {found} against {since}{_unlike(reference)}", change=found)
    looked = run.falls_short or f"TTFT P99 {change_since(run.answers, reference)} against {since}"
    if repeat is None:
        return Judgement(NO_DATA, f"{label}: {looked}, and the budget ended before it was measured again")
    found = None if repeat.falls_short else change_since(repeat.answers, reference)
    if repeat.falls_short or (found is not None and found.is_surely_beyond(threshold)):
        said = repeat.falls_short or f"{_p99(repeat)}; {found} against {since}"
        cause = cause_of(reference.differences)
        return Judgement(REGRESSION, f"{said}; {_why(cause, repeat, reference)}", cause, found)
    said = f"{_p99(repeat)} when measured again; {found} against {since}"
    return Judgement(GOOD, f"{said}: within noise, first it was {looked}{_unlike(reference)}", NOISE, found)


def judge_all(run: Run, repeat: Run | None, references: Sequence[Reference], threshold: float) -> Judgement:
    """Judge against each good night; a regression against one of them counts, so that no P99 creeps up unseen."""
    if not references:
        return judge(run, repeat, None, threshold)
    found = [judge(run, repeat, reference, threshold) for reference in references]
    said = [judgement for judgement in found if judgement.outcome != GOOD or judgement.cause is not None]
    return next((judgement for judgement in found if judgement.outcome == REGRESSION), (said or found)[0])


def beats(run: Run, production: Run, by: float) -> Change | None:
    """Return the change from production to a setting that surely is faster than it by more than `by`; else None."""
    found = change(run.answers, production.answers)
    if found is None or run.falls_short:
        return None
    gain = Change(*found)
    return gain if gain.interval is not None and gain.interval.high < -by else None


def _without_comparison(run: Run) -> Judgement:
    if run.falls_short:
        return Judgement(FAILED, f"{run.setting.label}: {run.falls_short}, and there is no good night before")
    return Judgement(GOOD, f"{_p99(run)}; there is no good night before to compare with")


def _p99(run: Run) -> str:
    figures = run.figures
    if figures is None:
        return run.setting.label
    low, high = figures.low_s, figures.high_s
    span = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{run.setting.label}: TTFT P99 {figures.ttft_p99_s:.3f} s{span}"


def _why(cause: str, run: Run, reference: Reference) -> str:
    new = [remark for remark in run.remarks if remark not in reference.night.notes]
    seen = f"; unlike then, {'; '.join(new)}" if new else ""
    if not reference.differences:
        return f"likely cause: {cause} that are not recorded, as nothing that is recorded differs{seen}"
    return f"likely cause: {cause} ({in_words(reference.differences)}){seen}"


def _unlike(reference: Reference) -> str:
    return f" ({in_words(reference.differences)})" if reference.differences else ""


def _of_other_sessions(mine: Sessions, theirs: Sessions) -> Change:
    """Compare two nights whose sessions have nothing to do with each other, so that each is resampled by itself."""
    ratio = mine.quantile(P99) / theirs.quantile(P99) - 1
    if mine.units < 2 or theirs.units < 2:
        return Change(ratio, None)
    sides: list[Floats] = [side.resampled(P99, draws(side.units, seed)) for seed, side in enumerate((mine, theirs))]
    return Change(ratio, Interval.of(sides[0] / sides[1] - 1))


def falls_short(records: Sequence[TrialRecord], broken: Sequence[str]) -> str:
    """Say why the records of a run may not be compared, or that they break constraints; empty when they are sound."""
    reason = next((record.reason for record in records if not record.usable), "")
    return reason or (f"breaks {', '.join(broken)}" if broken else "")
