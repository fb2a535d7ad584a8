"""When sessions arrive in an open load, whatever the engine does with the earlier ones.

Every process is one of unit rate, stretched by the inverse of its cumulative rate. So the same seed at another rate
gives the same pattern, closer together or further apart, and a search for the highest rate compares like with like.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from scenarios.errors import ScenarioError
from scenarios.strict import FilePart

Rate = Annotated[float, Field(gt=0)]


class _Process(FilePart, abc.ABC):
    @property
    @abc.abstractmethod
    def mean_per_s(self) -> float:
        """Return the session arrivals a second, on average, once any ramp is over."""

    @abc.abstractmethod
    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same process with another rate, its shape in time kept."""

    @abc.abstractmethod
    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield arrivals in seconds from the start of the load, in order; endless unless they were recorded."""


class Poisson(_Process):
    """Users who know nothing of each other."""

    kind: Literal["poisson"]
    rate_per_s: Rate
    """Sessions that begin in a second, on average."""

    @property
    def mean_per_s(self) -> float:
        """Return the rate."""
        return self.rate_per_s

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the process with another rate."""
        return self.model_copy(update={"rate_per_s": rate_per_s})

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield arrivals."""
        return (unit / self.rate_per_s for unit in _units(rng))


class Gamma(_Process):
    """Gaps of a chosen spread: bursts above a `cv` of 1, nearly a metronome far below it."""

    kind: Literal["gamma"]
    rate_per_s: Rate
    """Sessions that begin in a second, on average."""
    cv: Annotated[float, Field(gt=0, le=20)]
    """Coefficient of variation of the gaps: 1 is Poisson; recorded chat has about 1.1, recorded code requests 13."""

    @property
    def mean_per_s(self) -> float:
        """Return the rate."""
        return self.rate_per_s

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the process with another rate."""
        return self.model_copy(update={"rate_per_s": rate_per_s})

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield arrivals."""
        return (unit / self.rate_per_s for unit in _units(rng, self.cv))


class Ramp(_Process):
    """A rate that rises or falls evenly over `over_s`, and stays at its end value."""

    kind: Literal["ramp"]
    from_per_s: Annotated[float, Field(ge=0)]
    to_per_s: Rate
    over_s: Annotated[float, Field(gt=0)]

    @property
    def mean_per_s(self) -> float:
        """Return the rate after the ramp."""
        return self.to_per_s

    def at_rate(self, rate_per_s: float) -> Self:
        """Return a ramp that ends at `rate_per_s`, its beginning in proportion."""
        begin = self.from_per_s * rate_per_s / self.to_per_s
        return self.model_copy(update={"from_per_s": begin, "to_per_s": rate_per_s})

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield arrivals."""
        begin, slope = self.from_per_s, (self.to_per_s - self.from_per_s) / self.over_s
        ramped = (self.from_per_s + self.to_per_s) / 2 * self.over_s
        for unit in _units(rng):
            if unit >= ramped:
                yield self.over_s + (unit - ramped) / self.to_per_s
            else:  # the root of begin * t + slope / 2 * t^2 = unit, in the form that bears a slope of 0
                yield 2 * unit / (begin + math.sqrt(begin**2 + 2 * slope * unit))


class Spikes(_Process):
    """A calm rate, and at the end of every period a spike of `factor` times as many."""

    kind: Literal["spikes"]
    rate_per_s: Rate
    """Sessions that begin in a second, on average, spikes included."""
    every_s: Annotated[float, Field(gt=0)]
    """Seconds from the end of one spike to the end of the next."""
    spike_s: Annotated[float, Field(gt=0)]
    """How long a spike lasts."""
    factor: Annotated[float, Field(gt=0)]
    """The rate of a spike over that of the calm before it."""

    @model_validator(mode="after")
    def _spike_fits(self) -> Self:
        if self.spike_s >= self.every_s:
            raise ValueError(f"a spike of {self.spike_s:g} s does not fit in a period of {self.every_s:g} s")
        return self

    @property
    def mean_per_s(self) -> float:
        """Return the rate."""
        return self.rate_per_s

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the process with another rate, in calm and in spikes."""
        return self.model_copy(update={"rate_per_s": rate_per_s})

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield arrivals."""
        calm_s = self.every_s - self.spike_s
        calm_per_s = self.rate_per_s * self.every_s / (calm_s + self.factor * self.spike_s)
        calm = calm_per_s * calm_s
        for unit in _units(rng):
            period, rest = divmod(unit, self.rate_per_s * self.every_s)
            if rest < calm:
                yield period * self.every_s + rest / calm_per_s
            else:
                yield period * self.every_s + calm_s + (rest - calm) / (calm_per_s * self.factor)


class Recorded(_Process):
    """Arrivals as they were recorded; `file` has one time a line, and its path counts from the scenario's folder."""

    kind: Literal["recorded"]
    times_s: Annotated[tuple[Annotated[float, Field(ge=0)], ...] | None, Field(strict=False, min_length=2)] = None
    """Seconds from the start of the load, in order."""
    file: str | None = None
    rate_per_s: Rate | None = None
    """Bring them closer together or further apart, to so many a second on average; left out: as recorded."""

    @model_validator(mode="after")
    def _one_source_in_order(self) -> Self:
        if (self.times_s is None) == (self.file is None):
            raise ValueError("needs one of `times_s` and `file`")
        for number, (one, other) in enumerate(zip(self.times_s or (), (self.times_s or ())[1:], strict=False), start=2):
            if other < one:
                raise ValueError(f"time {number} is {other:g} s, before the {one:g} s of the one above it; sort them")
        if self.times_s and self.times_s[0] == self.times_s[-1]:
            raise ValueError("all times are the same; a rate needs two that differ")
        return self

    @property
    def mean_per_s(self) -> float:
        """Return the rate."""
        return self._recorded_per_s if self.rate_per_s is None else self.rate_per_s

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same arrivals, closer together or further apart."""
        return self.model_copy(update={"rate_per_s": rate_per_s})

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the recorded arrivals; nothing is drawn."""
        stretch = self._recorded_per_s / self.mean_per_s
        return (at_s * stretch for at_s in self._known)

    @property
    def _recorded_per_s(self) -> float:
        return (len(self._known) - 1) / (self._known[-1] - self._known[0])

    @property
    def _known(self) -> tuple[float, ...]:
        if self.times_s is None:
            raise ScenarioError(f"the arrivals in {self.file} are not read yet; load the scenario from its file")
        return self.times_s


Arrivals = Annotated[Poisson | Gamma | Ramp | Spikes | Recorded, Field(discriminator="kind")]
"""How sessions arrive in an open load."""


def _units(rng: np.random.Generator, cv: float = 1.0) -> Iterator[float]:
    """Yield the arrivals of a renewal process of one arrival a second."""
    at = 0.0
    while True:
        at += rng.gamma(1 / cv**2, cv**2)
        yield at
