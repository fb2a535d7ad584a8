"""How much a search may spend, in trials and in seconds; and how people write durations and shares."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from scenarios.errors import ConfigError

SECONDS = {"s": 1, "m": 60, "h": 3600}
FIRST_GUESS_S = 60.0


def parse_duration(text: str, flag: str) -> float:
    """Read `90s`, `15m`, `2h` or `1h30m` as seconds; raise ConfigError naming the flag."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or seconds == 0:
        raise ConfigError(f"{flag} {text}: write a duration above zero, such as 90s, 15m, 2h or 1h30m")
    return seconds


def parse_share(text: str, flag: str) -> float:
    """Read a percentage such as `5%` as a share; raise ConfigError naming the flag."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if not found or not 0 < float(found[1]) <= 100:
        raise ConfigError(f"{flag} {text}: write a percentage above 0%, such as 5%")
    return float(found[1]) / 100


@dataclass
class Budget:
    """What is left, and what a trial costs by those that were run."""

    trials: int
    seconds: float | None
    confirm_trials: int
    """Trials that the confirmation will take; the search leaves time for them."""
    started: float = field(default_factory=time.monotonic)
    _durations: list[float] = field(default_factory=list)

    def spent(self, trial_s: float) -> None:
        """Learn what one trial cost."""
        self._durations.append(trial_s)

    @property
    def trial_s(self) -> float:
        """The expected cost of one trial in seconds."""
        recent = self._durations[-5:]
        return sum(recent) / len(recent) if recent else FIRST_GUESS_S

    @property
    def left_s(self) -> float:
        """Seconds left; infinite without a limit."""
        if self.seconds is None:
            return float("inf")
        return self.seconds - (time.monotonic() - self.started)

    def allows_search_trial(self, measured: int) -> bool:
        """Whether another search trial fits beside the confirmation; the first is tried, a guess is no evidence."""
        reserve_s = (1 + self.confirm_trials) * self.trial_s if self._durations else 0.0
        return measured < self.trials and self.left_s > reserve_s

    def allows_confirm_trial(self, expected_s: float | None = None) -> bool:
        """Whether a trial fits that is expected to take so long; by default as long as the latest ones did."""
        return self.left_s >= (self.trial_s if expected_s is None else expected_s)

    def eta_s(self, measured: int, confirmed: int = 0) -> float:
        """Seconds until the end as things stand, after so many search and confirmation trials."""
        trials = max(0, self.trials - measured) + max(0, self.confirm_trials - confirmed)
        return min(trials * self.trial_s, max(0.0, self.left_s))
