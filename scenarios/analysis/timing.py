"""When requests begin that no clock has recorded: users that play one session after another."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scenarios.analysis.keys import Integers

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Assumptions:
    """What is assumed where a load does not say it. Every one that is used is named in the analysis."""

    users: int = 32
    """Users at a time, for traces whose sessions have no common clock."""
    seed: int = 0
    """Order of those sessions, and starts of those users."""
    start_within_s: float = 600.0
    """Those users come in over so many seconds."""
    service_s: float = 2.0
    """From the beginning of a request to the end of its reply."""
    think_s: float = 10.0
    """From a reply to the next message of its user."""
    think_limit_s: float = 120.0
    """A recorded pause that is longer is taken for this: who comes back next day is another load."""


def played(
    session: Integers, gap_s: Seconds, service_s: float, order: list[int], first_starts_s: list[float]
) -> Seconds:
    """Return when each request begins, in seconds.

    `session` numbers the session of each request from 0, `gap_s` is the time since the session's request before it
    began. User i begins with the session `order[i]` at `first_starts_s[i]`; whoever is free takes the next one.
    """
    by_session = np.argsort(session, kind="stable")
    sums = np.cumsum(gap_s[by_session])
    firsts = np.searchsorted(session[by_session], np.arange(len(order)))
    lasts = np.append(firsts[1:], len(session)) - 1
    offsets = np.empty(len(session))
    offsets[by_session] = sums - sums[firsts][session[by_session]]
    durations_s = sums[lasts] - sums[firsts] + service_s

    starts_s = np.empty(len(order))
    firsts_taken = order[: len(first_starts_s)]
    starts_s[firsts_taken] = first_starts_s[: len(firsts_taken)]
    free_at_s = (starts_s + durations_s)[firsts_taken].tolist()
    heapq.heapify(free_at_s)
    for number in order[len(first_starts_s) :]:
        starts_s[number] = free_at_s[0]
        heapq.heapreplace(free_at_s, free_at_s[0] + durations_s[number])
    return starts_s[session] + offsets
