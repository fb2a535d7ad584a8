"""One dimension of a search: a flag, its values, and when it exists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import optuna
from pydantic import model_validator

from scenarios.strict import StrictModel, later

Choice = bool | int | float | str

SGLANG_DEFAULT = "default"
"""The value that leaves a flag out, so that SGLang decides: among other values, or alone to search none."""
HICACHE = "hicache"
DECIMALS, DIGITS = 6, 4
"""What is kept of a proposed number: decimals on a grid, significant digits on a logarithmic scale."""


class Condition(StrictModel):
    """That another dimension has one of these values."""

    name: str
    values: tuple[Choice, ...]

    def holds(self, proposed: Mapping[str, Choice]) -> bool:
        """Whether it does, among the values proposed so far; a dimension that does not exist has none of them."""
        return proposed.get(self.name) in self.values

    @property
    def text(self) -> str:
        """Say it in words that follow the dimension's values."""
        if self == WITH_HICACHE:
            return "with HiCache"
        return f"when {self.name} is {' or '.join(map(written, self.values))}"


WITH_HICACHE = Condition(name=HICACHE, values=(True,))


class Dimension(StrictModel):
    """One flag and its values: either `choices`, or numbers from `low` to `high`.

    Numbers lie on a grid of `step`, or with `log` on a logarithmic scale: whole ones between whole ends, else any.
    """

    name: str
    choices: tuple[Choice, ...] = ()
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = later(False)
    when: tuple[Condition, ...] = later(())
    """All must hold for the flag to exist."""

    @model_validator(mode="before")
    @classmethod
    def _as_first_recorded(cls, data: Any) -> Any:
        """Read a dimension of an older study.json, whose only condition could be HiCache."""
        if not isinstance(data, dict) or "needs_hicache" not in data:
            return data
        rest = {key: value for key, value in data.items() if key != "needs_hicache"}
        return rest | ({"when": (WITH_HICACHE,)} if data["needs_hicache"] else {})

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        numbers = (self.low, self.high, self.step)
        if self.choices:
            if self.log or any(number is not None for number in numbers):
                raise ValueError("give either choices or a range")
            return self
        if self.low is None or self.high is None or (self.step is None and not self.log):
            raise ValueError("give either choices or low, high and step")
        if self.log and (self.step is not None or self.low <= 0):
            raise ValueError(f"{self.values_text}: a logarithmic scale begins above 0 and has no step")
        if self.low > self.high or (self.step is not None and self.step <= 0):
            raise ValueError(f"{self.values_text} is empty; give LOW <= HIGH and STEP > 0")
        return self

    @property
    def values_text(self) -> str:
        """Write the values as the user would."""
        if self.choices or self.low is None or self.high is None:
            return ",".join(map(written, self.choices))
        return f"{self.low:g}:{self.high:g}:{'log' if self.step is None else f'{self.step:g}'}"

    @property
    def text(self) -> str:
        """Write values and conditions, for people."""
        conditions = ", ".join(condition.text for condition in self.when)
        return f"{self.values_text} ({conditions})" if conditions else self.values_text

    @property
    def whole(self) -> bool:
        """Whether this is a range of whole numbers."""
        return not self.choices and all(float(x or 0).is_integer() for x in (self.low, self.high, self.step))

    @property
    def ends(self) -> tuple[Choice, ...]:
        """The values whose check tells for all: every choice, or both ends of a range."""
        if self.choices or self.low is None or self.high is None:
            return self.choices
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    @property
    def grid(self) -> tuple[Choice, ...]:
        """All values in order; of a logarithmic scale, both ends and each doubling between."""
        if self.choices or self.low is None or self.high is None:
            return self.choices
        if self.step is None:
            doublings = math.ceil(math.log2(self.high / self.low) - 1e-9)
            numbers = [*(self.low * 2**i for i in range(doublings)), self.high]
        else:
            steps = math.floor((self.high - self.low) / self.step + 1e-9)
            numbers = [round(self.low + i * self.step, DECIMALS) for i in range(steps + 1)]
        return tuple(int(number) for number in numbers) if self.whole else tuple(numbers)

    def exists(self, proposed: Mapping[str, Choice]) -> bool:
        """Whether the flag exists beside the values proposed so far."""
        return all(condition.holds(proposed) for condition in self.when)

    def suggest(self, trial: optuna.Trial) -> Choice:
        """Ask Optuna for a value."""
        if self.choices:
            chosen: Choice = trial.suggest_categorical(self.name, self.choices)  # type: ignore[assignment]
            return chosen
        if self.low is None or self.high is None:
            raise ValueError(self.name)
        if self.whole:
            step = 1 if self.step is None else int(self.step)
            return trial.suggest_int(self.name, int(self.low), int(self.high), step=step, log=self.log)
        number = trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)
        if self.step is not None:
            return round(number, DECIMALS)
        return min(self.high, max(self.low, float(f"{number:.{DIGITS}g}")))


def written(value: Choice) -> str:
    """Write one value as the user would."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
