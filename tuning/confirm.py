"""Measures a few settings again on fresh seeds, in turn, until the differences are known or the budget ends.

Every round plays the same fresh sessions with each setting, in an order that is reversed from round to round, so that
a machine that slows down or warms up favours none. After the rounds that all of them get, repeats are spent where they
matter: a setting that is surely worse plays no more, and nobody does once every difference that counts is settled.

Who looks again and again must not stop at the first look that pleases: of two equal settings one would be called
better far too often. So a difference is settled when its interval is narrow, whatever it says, or when it lies clear of
zero by a whole width of itself, which chance does not reach however often one looks (docs/confirmation.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.engine.setting import Setting
from harness.statistics import Change, Interval
from harness.store import Purpose, TrialRecord
from scenarios.plan import Plan
from tuning.objective import Objective
from tuning.runs import Runs
from tuning.verdict import Confirmed, best_of, confirmations

CONFIRM_SEED_OFFSET = 1000
"""Seeds of the confirmation lie far from the search's own, so that its sessions are fresh."""

Narrow = Callable[[Sequence[Setting], Sequence[TrialRecord]], Sequence[Setting]]
"""Says which of the settings play another round, from the trials of all rounds before it; nobody ends it."""


@dataclass(frozen=True)
class Rounds:
    """Everybody plays `least` rounds. Then those in question go on, up to `most`."""

    least: int
    most: int


@dataclass
class Confirmation:
    """Plays rounds. Who plays in one follows from the trials of those before, so a resume goes on where it was."""

    runs: Runs
    rounds: Rounds
    make_plan: Callable[[int], Plan]
    first_seed: int
    purpose: Purpose = "confirm"

    def play(self, contenders: Sequence[Setting], narrow: Narrow) -> None:
        """Measure `contenders` round after round, until nobody is in question, the budget ends or a stop is asked."""
        for number in range(self.rounds.most):
            further = number >= self.rounds.least
            if further:
                contenders = narrow(contenders, self._trials_before(number))
            if not contenders:
                return
            if not self._round(number, contenders) and (further or self.runs.lab.should_stop()):
                return

    def _round(self, number: int, contenders: Sequence[Setting]) -> bool:
        """Measure each once, as far as it is not; say whether the round is whole."""
        seed = self.first_seed + number
        for setting in contenders if number % 2 == 0 else reversed(contenders):
            if self.runs.lab.should_stop():
                return False
            # A setting that misses its budget leaves the time to a quicker one.
            if not self.runs.has(self.purpose, setting, seed) and self.runs.budget.allows_confirm_trial(
                self.runs.took_s(setting)
            ):
                self.runs.run(self.purpose, setting, self.make_plan(seed))
        return all(self.runs.has(self.purpose, setting, seed) for setting in contenders)

    def _trials_before(self, number: int) -> list[TrialRecord]:
        seeds = range(self.first_seed, self.first_seed + number)
        return [record for record in self.runs.records if record.purpose == self.purpose and record.seed in seeds]


@dataclass(frozen=True)
class InQuestion:
    """Narrows the confirmation of a search. `needed` is the baseline of the claim, which plays as long as anybody."""

    root: Path
    objective: Objective
    until: float
    """Width of the interval of a relative difference that is narrow enough, such as 0.05."""
    needed: Setting | None

    def __call__(self, contenders: Sequence[Setting], trials: Sequence[TrialRecord]) -> Sequence[Setting]:
        """Keep those that may be the best and the baseline, as long as a difference to the best is not settled."""
        confirmed = confirmations(trials, self.root, self.objective.metric)
        sound = {key: c for key, c in confirmed.items() if c.sound(self.objective)}
        if not sound:
            return ()
        best = best_of(sound.values())
        needed = self.needed.key if self.needed is not None else None
        kept = [
            setting
            for setting in contenders
            if setting.key == needed or (setting.key in sound and sound[setting.key].ties_with(best))
        ]
        others = [sound[s.key] for s in kept if s.key in sound and s.key != best.setting.key]
        return () if all(self._is_settled(other, best) for other in others) else kept

    def _is_settled(self, other: Confirmed, best: Confirmed) -> bool:
        found = best.change_from(other)
        return found is not None and settled(found, self.until)


def settled(change: Change, until: float) -> bool:
    """Whether further rounds would not change what the interval of a difference says.

    One that cannot be told relative to the other setting, as that has zero, is never narrow.
    """
    relative = change.relative_interval
    is_narrow = relative is not None and relative.high - relative.low <= until
    return is_narrow or (change.interval is not None and _clear_of_zero(change.interval))


def _clear_of_zero(interval: Interval) -> bool:
    width = interval.high - interval.low
    return interval.low > width or interval.high < -width
