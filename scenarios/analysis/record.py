"""All that is said of a load before any GPU second, as one record with a schema."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from scenarios.analysis.machine import Machine
from scenarios.analysis.prior import CachePrior
from scenarios.analysis.sharing import ReuseQuantiles, Sharing, WorkingSet
from scenarios.strict import StrictModel

FEW_REQUESTS = 100
"""Fewer are no base for shares."""


class Answer(enum.StrEnum):
    """Whether HiCache is worth a try."""

    HELPS = "helps"
    DOES_NOT_HELP = "does not help"
    DEPENDS = "depends"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True)
class Verdict:
    """The answer, with the one reason that decided."""

    answer: Answer
    reason: str
    pool: str = ""
    """The host pool that is recommended, as a flag; empty when none is."""

    @property
    def sentence(self) -> str:
        """The answer for people."""
        begin = {
            Answer.HELPS: "HiCache is expected to help",
            Answer.DOES_NOT_HELP: "HiCache is not expected to help",
            Answer.DEPENDS: "It depends",
            Answer.UNKNOWN: "It cannot be told whether HiCache helps",
        }[self.answer]
        return f"{begin}: {self.reason}."


@dataclass(frozen=True)
class Mark:
    """The device pool with one candidate for the host pool behind it; figures are over the counted requests."""

    pool: str
    """Flag of the host pool; empty for the device pool alone."""
    host_tokens: int
    host_gb: float | None
    """Size on each rank."""
    together_tokens: int
    """What both tiers hold at a time."""
    device_hit_rate: float
    host_hit_rate: float
    saved_tokens: int
    """Prompt tokens that come from the host in place of being computed."""
    saved_work: float
    """The same as a share of what the device pool alone leaves to compute."""
    saved_prefill_s: float | None
    reload_s: float | None
    """The time that the copies take."""
    reload_gb_per_s: float | None
    """Mean over the load, each rank."""
    peak_reload_gb_per_s: float | None

    @property
    def hit_rate(self) -> float:
        """Of both tiers."""
        return self.device_hit_rate + self.host_hit_rate


class Arrivals(StrictModel):
    """Requests over time."""

    requests: int
    counted: int
    """Requests that hit rates are over; the others fill the cache."""
    sessions: int | None
    """None: the source does not say which requests belong together."""
    duration_s: float
    """From the first request to the last."""
    times: Literal["recorded", "simulated"]
    prompt_tokens: int
    """Of the counted requests."""
    median_prompt_tokens: int
    longest_prompt_tokens: int
    until_s: tuple[float, ...]
    """Ends of equal windows of time."""
    in_window: tuple[int, ...]
    """Requests that begin in each."""


class CacheUse(StrictModel):
    """What prompts share, and what caches of any size would save of them."""

    block_tokens: int
    blocks: int
    """Blocks that were counted on."""
    sample_rate: float
    """Their share of all blocks; 1 is exact."""
    sharing: Sharing
    reuse: ReuseQuantiles | None
    """None: no prompt token was seen before."""
    working_set: WorkingSet
    curve: CachePrior
    """Hit rate of an LRU cache by its size."""
    knee_tokens: int
    """Where more cache stops to pay, beyond the device pool if that is known (see `HitCurve.knee`)."""
    marks: tuple[Mark, ...]
    """The device pool alone, then with each host pool by size; empty when the device pool is not known."""


class Analysis(StrictModel):
    """The record of `hicache-tune analyze`."""

    schema_version: Literal[1] = 1
    source: str
    verdict: Verdict
    sentence: str
    """The verdict for people."""
    arrivals: Arrivals
    cache: CacheUse | None
    """None: the source has neither block ids nor text."""
    machine: Machine
    notes: tuple[str, ...]
    """What was assumed or left out, a sentence each."""
