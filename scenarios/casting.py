"""Which sessions a plan has, why each is played, and when it begins."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from scenarios.errors import ScenarioError
from scenarios.plan import Phase, Session

FILLERS_PER_SLOT = 4
"""Sessions to go on with while the last counted ones end: enough for a slot that is four times quicker."""
SLOTS_PER_SETTLING_SESSION = 2
"""After its opening session a slot plays on; so many slots share one whole session more before anything is counted.
Only then are the caches as full as they stay, and what is counted earlier would be served more easily than the rest."""
SETTLED_QUANTILE = 0.9
"""An open load has settled when 9 of 10 of the sessions that began with it have ended."""
SAMPLED_SESSIONS = 200
OVERTIME = 2.0
"""Fillers arrive until every counted session could have taken twice its nominal length."""
MOST_OPEN_SESSIONS = 200_000
"""A plan with more sessions than this is a slip of the pen in a rate or a length, and would not fit in memory."""


class Role(enum.IntEnum):
    """What a session, or a shared text, is for; the values are keys of its random streams, so they stay."""

    OPENING = 0
    COUNTED = 1
    FILLER = 2
    SYSTEM_PROMPT = 3
    SETTLING = 4
    WARMUP = 5
    DOCUMENT = 6
    EXAMPLES = 7
    ARRIVALS = 8
    MIX = 9


PHASES = {
    Role.OPENING: Phase.WARMUP,
    Role.SETTLING: Phase.WARMUP,
    Role.WARMUP: Phase.WARMUP,
    Role.COUNTED: Phase.COUNTED,
    Role.FILLER: Phase.FILLER,
}


@dataclass(frozen=True, slots=True)
class Sketch:
    """A session before its words are written."""

    nominal_s: float
    """About how long it lasts."""
    write: Callable[[float], Session]
    """Write it, with its arrival in seconds."""
    arrival_share: float = 0.0
    """Opening sessions: where in its slot's part of the ramp it arrives, from 0 to 1."""


class Source(Protocol):
    """Whatever sessions are made from."""

    def sketch(self, role: Role, index: int) -> Sketch:
        """Sketch the session number `index` of `role`; the same arguments always give the same one."""


def closed_sessions(source: Source, *, slots: int, ramp_s: float, counted: int) -> Iterator[Session]:
    """Make the sessions of a closed load: `slots` at a time, the next whenever one has ended."""
    for index in range(slots):
        sketch = source.sketch(Role.OPENING, index)
        yield sketch.write(round(ramp_s * (index + sketch.arrival_share) / slots, 3))
    numbers = {
        Role.SETTLING: math.ceil(slots / SLOTS_PER_SETTLING_SESSION),
        Role.COUNTED: counted,
        Role.FILLER: FILLERS_PER_SLOT * slots,
    }
    for role, number in numbers.items():
        for index in range(number):
            yield source.sketch(role, index).write(0.0)


def open_sessions(
    source: Source, times: Iterator[float], *, counted: int, warm_up_s: float | None, where: str
) -> Iterator[Session]:
    """Make the sessions of an open load, one for each of `times`.

    Those that arrive before `warm_up_s` are not counted, `counted` ones come next, and fillers keep arriving while
    counted ones may run. Raise ScenarioError that names `where` when the times end before all counted ones have come.
    """
    settled_s = settling_s(source) if warm_up_s is None else warm_up_s
    indices = {role: itertools.count() for role in PHASES}
    done, under_load_s = 0, math.inf
    for arrived, at_s in enumerate(times):
        if done == counted and at_s > under_load_s:
            return
        if arrived == MOST_OPEN_SESSIONS:
            raise ScenarioError(f"{where}: more than {MOST_OPEN_SESSIONS} sessions would arrive; lower the rate")
        role = Role.WARMUP if at_s < settled_s else Role.COUNTED if done < counted else Role.FILLER
        sketch = source.sketch(role, next(indices[role]))
        if role is Role.COUNTED:
            done += 1
            end_s = at_s + OVERTIME * sketch.nominal_s
            under_load_s = end_s if under_load_s == math.inf else max(under_load_s, end_s)
        yield sketch.write(round(at_s, 3))
    if done < counted:
        raise ScenarioError(
            f"{where}: only {done} sessions arrive after the warm-up of {settled_s:.1f} s, and {counted} are to be "
            "counted; count fewer, or set a shorter `sessions.warm_up_s`"
        )


def settling_s(source: Source) -> float:
    """Return after how many seconds the number of live sessions of an open load has settled."""
    lengths = [source.sketch(Role.COUNTED, index).nominal_s for index in range(SAMPLED_SESSIONS)]
    return float(np.quantile(lengths, SETTLED_QUANTILE))
