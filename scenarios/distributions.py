"""The distributions that a scenario's lengths and times are drawn from.

In a file a distribution is a mapping with `kind:`; a bare number is a constant.
"""

from __future__ import annotations

import abc
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from scenarios.strict import FilePart


class _Distribution(FilePart, abc.ABC):
    @property
    @abc.abstractmethod
    def least(self) -> float | None:
        """Return the smallest value that can be drawn; None when it is only known to be above 0."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value."""

    def draw_whole(self, rng: np.random.Generator) -> int:
        """Draw one whole number of at least 1."""
        return max(1, round(self.draw(rng)))


class Constant(_Distribution):
    """Always the same value."""

    kind: Literal["constant"]
    value: float

    @property
    def least(self) -> float:
        """Return the value."""
        return self.value

    def draw(self, rng: np.random.Generator) -> float:
        """Return the value."""
        return self.value


class Uniform(_Distribution):
    """Any value from `min` to `max`, all equally likely; whole numbers include both ends."""

    kind: Literal["uniform"]
    min: float
    max: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self

    @property
    def least(self) -> float:
        """Return `min`."""
        return self.min

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value."""
        return float(rng.uniform(self.min, self.max))

    def draw_whole(self, rng: np.random.Generator) -> int:
        """Draw one whole number from `min` to `max`, both included."""
        return int(rng.integers(round(self.min), round(self.max), endpoint=True))


class Lognormal(_Distribution):
    """A long tail to the right: half of the values are below `median`; clipped to `min`..`max`."""

    kind: Literal["lognormal"]
    median: float = Field(gt=0)
    sigma: float = Field(ge=0)
    """Standard deviation of the logarithm: 0.5 spreads by a factor of 2 or 3, 1.0 by a factor of 10."""
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.min > self.median:
            raise ValueError(f"min {self.min:g} is above the median {self.median:g}")
        if self.max is not None and self.max < self.median:
            raise ValueError(f"max {self.max:g} is below the median {self.median:g}")
        return self

    @property
    def least(self) -> float | None:
        """Return `min`."""
        return self.min

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value."""
        value = float(rng.lognormal(np.log(self.median), self.sigma))
        above = value if self.min is None else max(self.min, value)
        return above if self.max is None else min(self.max, above)


class Choice(_Distribution):
    """One of `values`, in proportion to `weights` (equal when left out)."""

    kind: Literal["choice"]
    values: tuple[float, ...] = Field(min_length=1, strict=False)
    weights: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(default=None, strict=False)

    @model_validator(mode="after")
    def _weighted(self) -> Self:
        if self.weights is not None and len(self.weights) != len(self.values):
            raise ValueError(f"{len(self.weights)} weights for {len(self.values)} values")
        if self.weights is not None and sum(self.weights) == 0:
            raise ValueError("the weights are all 0")
        return self

    @property
    def least(self) -> float:
        """Return the smallest of `values`."""
        return min(self.values)

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one of `values`."""
        weights = None if self.weights is None else np.array(self.weights) / sum(self.weights)
        return float(rng.choice(self.values, p=weights))


_Tagged = Annotated[Constant | Uniform | Lognormal | Choice, Field(discriminator="kind")]


def _number_is_constant(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"kind": "constant", "value": value}
    if not isinstance(value, dict | _Distribution):
        raise ValueError("needs a number or a distribution such as {kind: uniform, min: 4, max: 12}")
    return value


def _counts(distribution: Any) -> Any:
    if distribution.least is not None and distribution.least < 1:
        raise ValueError(f"can be {distribution.least:g}, must be at least 1")
    return distribution


def _seconds(distribution: Any) -> Any:
    if distribution.least is not None and distribution.least < 0:
        raise ValueError(f"can be {distribution.least:g} seconds, must not be negative")
    return distribution


Distribution = Annotated[_Tagged, BeforeValidator(_number_is_constant, json_schema_input_type=float | _Tagged)]
"""Any of the distributions; a number stands for a constant."""

Counts = Annotated[Distribution, AfterValidator(_counts)]
"""A distribution of whole numbers of at least 1."""

Seconds = Annotated[Distribution, AfterValidator(_seconds)]
"""A distribution of seconds of at least 0."""
