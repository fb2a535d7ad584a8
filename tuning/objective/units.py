"""How the values of a metric are written by a user, and how they are said to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """The units of one kind of value, which is kept in seconds, bytes, shares or counts a second."""

    written: Mapping[str, float]
    """What a limit may be given in, and how much one of it is."""
    form: str
    scale: float = 1.0
    """How much one of what is said to people is."""
    name: str = ""
    """What follows the number; empty where the form has it."""

    def number(self, value: float) -> str:
        """Write a value without its unit, as within an interval."""
        return format(value / self.scale, self.form)

    def say(self, value: float) -> str:
        """Write a value with its unit."""
        return f"{self.number(value)}{f' {self.name}' if self.name else ''}"

    def span(self, low: float | None, high: float | None) -> str:
        """Write an interval."""
        return "(no interval)" if low is None or high is None else f"[{self.number(low)}, {self.number(high)}]"


SECONDS = Unit({"ms": 1e-3, "s": 1.0}, ".3f", name="s")
BYTES = Unit({"MiB": 2.0**20, "GiB": 2.0**30, "MB": 1e6, "GB": 1e9}, ".2f", 2.0**30, "GiB")
SHARE = Unit({"%": 0.01}, ".1%")
REQUESTS_PER_S = Unit({"requests/s": 1.0}, ".2f", name="requests/s")
TOKENS_PER_S = Unit({"tokens/s": 1.0}, ".1f", name="tokens/s")
