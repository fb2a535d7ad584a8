"""Goodput: how many requests meet a service level, of those that could."""

from __future__ import annotations

import re
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field, model_validator

from harness.load.record import Status
from harness.metrics.definitions import Sample, answered, e2e, tpot, ttft
from harness.statistics import Sessions
from scenarios.errors import ConfigError
from scenarios.strict import StrictModel, nearest

PATTERN = re.compile(r"\s*(\w+)\s*<=\s*(\d+\.?\d*|\.\d+)\s*(ms|s)\s*")
SECONDS = {"ms": 1e-3, "s": 1.0}

Bools = npt.NDArray[np.bool_]


class Slo(StrictModel):
    """A service level: limits that one request must meet, all that are given. None is no limit."""

    ttft_s: float | None = Field(default=None, gt=0)
    tpot_s: float | None = Field(default=None, gt=0)
    e2e_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.ttft_s is None and self.tpot_s is None and self.e2e_s is None:
            raise ValueError("a service level needs a limit on ttft, tpot or e2e")
        return self

    @classmethod
    def read(cls, text: str) -> Slo:
        """Read `ttft<=500ms, tpot<=50ms`; raise ConfigError that names the part at fault."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            found = PATTERN.fullmatch(part)
            if not found:
                raise ConfigError(f"service level `{text}`: `{part.strip()}` is no limit; write it as `ttft<=500ms`")
            name, number, unit = found.groups()
            if f"{name}_s" not in cls.model_fields:
                known = [field.removesuffix("_s") for field in cls.model_fields]
                raise ConfigError(f"service level `{text}`: unknown metric `{name}`{nearest(name, known)}")
            if f"{name}_s" in limits:
                raise ConfigError(f"service level `{text}`: {name} is limited twice; leave one out")
            limits[f"{name}_s"] = float(number) * SECONDS[unit]
        return cls.parse(limits, where=f"service level `{text}`")

    def __str__(self) -> str:
        limits = {"TTFT": self.ttft_s, "TPOT": self.tpot_s, "end to end": self.e2e_s}
        return ", ".join(f"{name} <= {limit:g} s" for name, limit in limits.items() if limit is not None)


class Goodput(StrictModel):
    """How many requests met a service level. A failed or timed-out one missed it, whatever the level says."""

    slo: Slo
    judged: int
    met: int
    share: float
    share_low: float | None
    share_high: float | None
    requests_per_s: float
    """Counted requests that met it, for each second of the window; what is not counted ran beside them."""
    requests_per_s_low: float | None
    requests_per_s_high: float | None
    cut: int
    """Requests that the end of the load cut: not judged."""
    unknown: int
    """Not judged, as a limit is on what they do not have: a reply without a token count, or that the user left."""


def goodput(records: pd.DataFrame, slo: Slo, *, seconds: float) -> Goodput | None:
    """Judge every request of a window of `seconds`; None when there is none to judge."""
    verdicts = judge(records, slo)
    judged, met = verdicts.judged, verdicts.met
    count, good = int(judged.sum()), int(met.sum())
    if count == 0 or seconds <= 0:
        return None
    sessions = records["session_id"].to_numpy(dtype=object)[judged]
    interval = Sessions(met[judged].astype(np.float64), sessions).interval_of_mean()
    rate = count / seconds
    return Goodput(
        slo=slo,
        judged=count,
        met=good,
        share=good / count,
        share_low=interval.low if interval else None,
        share_high=interval.high if interval else None,
        requests_per_s=good / seconds,
        requests_per_s_low=interval.low * rate if interval else None,
        requests_per_s_high=interval.high * rate if interval else None,
        cut=int((records["status"] == Status.CUT).sum()),
        unknown=int(verdicts.unknown.sum()),
    )


def judge(records: pd.DataFrame, slo: Slo) -> Verdicts:
    """Hold each request against every limit of a service level."""
    verdicts = Verdicts(records)
    if slo.ttft_s is not None:
        verdicts.limit(ttft(records), slo.ttft_s)
    if slo.tpot_s is not None:
        verdicts.limit(tpot(records), slo.tpot_s, needless=_single_token(records))
    if slo.e2e_s is not None:
        verdicts.limit(e2e(records), slo.e2e_s)
    return verdicts


class Verdicts:
    """What is known of each request: whether it missed a limit, and whether a limit could not be checked."""

    def __init__(self, records: pd.DataFrame) -> None:
        self._answered = answered(records)
        self._missed: Bools = records["status"].isin([Status.FAILED, Status.TIMEOUT]).to_numpy(copy=True)
        self._unchecked = np.zeros(len(records), dtype=bool)

    def limit(self, sample: Sample, limit_s: float, *, needless: Bools | None = None) -> None:
        """Hold `sample` against a limit; requests of `needless` meet it without a value."""
        self._missed[sample.rows[sample.values_s > limit_s]] = True
        valued = np.zeros(len(self._answered), dtype=bool) if needless is None else needless.copy()
        valued[sample.rows] = True
        self._unchecked |= self._answered & ~valued

    @property
    def judged(self) -> Bools:
        """Which requests are known to meet or to miss the service level."""
        return self._missed | (self._answered & ~self._unchecked)

    @property
    def met(self) -> Bools:
        """Which meet every limit."""
        return self._answered & ~self._unchecked & ~self._missed

    @property
    def unknown(self) -> Bools:
        """Which were answered, without a value to hold against a limit."""
        return self._answered & self._unchecked & ~self._missed


def _single_token(records: pd.DataFrame) -> Bools:
    """Tell whose reply has no token after the first, and so nothing to wait for."""
    tokens = records["output_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    return (records["status"] == Status.OK).to_numpy() & (tokens <= 1)
