"""Finds the steady window of a load from the times of its requests, without asking the plan.

Three things of a load are not steady: sessions are still arriving (ramp-up), the first turns that all come at once
have no cached history (the stampede), and users leave at the end (ramp-down). See docs/statistics.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.statistics import Floats
from scenarios.plan import Phase
from scenarios.strict import StrictModel

PLATEAU = 0.9
"""The share of the usual concurrency from which a load is at its full level."""


class Window(StrictModel):
    """The steady part of a load. Times are seconds after its first request was due."""

    start_s: float
    end_s: float
    why: str
    """For people: from what the bounds follow."""
    usual_sessions: float
    """Sessions at a time: the median over the instants at which requests were due."""
    plateau_start_s: float
    plateau_end_s: float
    """From the first to the last instant at which there were at least 90 % of the usual sessions."""
    stampede_end_s: float
    """When first turns were no larger a share of the requests in flight than in the plateau's second half."""
    counted_outside: int
    """Counted requests that were due outside of the window, or after the plateau's end."""


@dataclass(frozen=True)
class _Times:
    """When requests were due and ended, in seconds after the first was due."""

    due_s: Floats
    end_s: Floats
    first_turn: npt.NDArray[np.bool_]
    counted: npt.NDArray[np.bool_]
    session_start_s: Floats
    session_end_s: Floats

    @classmethod
    def of(cls, records: pd.DataFrame) -> _Times:
        due_ns, end_ns = (records[name].to_numpy(dtype=np.int64) for name in ("scheduled_ns", "end_ns"))
        start_ns = due_ns.min()
        due_s, end_s = (due_ns - start_ns) / 1e9, (end_ns - start_ns) / 1e9
        session = pd.factorize(records["session_id"])[0]
        session_start_s, session_end_s = np.full(session.max() + 1, np.inf), np.zeros(session.max() + 1)
        np.minimum.at(session_start_s, session, due_s)
        np.maximum.at(session_end_s, session, end_s)
        return cls(
            due_s,
            end_s,
            (records["turn"] == 0).to_numpy(dtype=bool),
            (records["phase"] == Phase.COUNTED).to_numpy(dtype=bool),
            session_start_s,
            session_end_s,
        )


def find_window(records: pd.DataFrame) -> Window | None:
    """Find the steady window of a load; None when it has no request.

    Where the plan has told counted sessions from warm-up and fillers, the window lies within the counted ones.
    """
    if records.empty:
        return None
    times = _Times.of(records)
    usual, plateau_start_s, plateau_end_s = _plateau(times)
    stampede_end_s = _stampede_end_s(times, plateau_start_s, plateau_end_s)
    start_s, end_s = stampede_end_s, plateau_end_s
    planned = bool(times.counted.any() and not times.counted.all())
    if planned:
        start_s = max(start_s, float(times.due_s[times.counted].min()))
        end_s = max(start_s, float(times.end_s[times.counted].max()))
    outside = times.counted & ((times.due_s < start_s) | (times.due_s > min(end_s, plateau_end_s)))
    return Window(
        start_s=start_s,
        end_s=end_s,
        why=_why(planned, stampede_end_s, start_s, usual),
        usual_sessions=usual,
        plateau_start_s=plateau_start_s,
        plateau_end_s=plateau_end_s,
        stampede_end_s=stampede_end_s,
        counted_outside=int(outside.sum()),
    )


def with_phases(records: pd.DataFrame) -> pd.DataFrame:
    """Give the requests of a load that was not planned by us the phases that follow from its steady window."""
    window = find_window(records)
    if window is None:
        return records
    due_s = _Times.of(records).due_s
    early, late = due_s < window.start_s, due_s > window.end_s
    return records.assign(phase=np.select([early, late], [Phase.WARMUP, Phase.FILLER], Phase.COUNTED).astype(object))


def _plateau(times: _Times) -> tuple[float, float, float]:
    """Return the usual number of sessions at a time, and the first and last instant of 90 % of it.

    A request's view, not the clock's: a few long sessions at the end would make the clock's median too low.
    """
    usual = float(np.median(_running(times.session_start_s, times.session_end_s, times.due_s)))
    instants = np.unique(np.concatenate([times.session_start_s, times.session_end_s]))
    full = np.flatnonzero(_running(times.session_start_s, times.session_end_s, instants) >= PLATEAU * usual)
    first, last = int(full[0]), min(int(full[-1]) + 1, len(instants) - 1)
    return usual, float(instants[first]), float(instants[last])


def _stampede_end_s(times: _Times, plateau_start_s: float, plateau_end_s: float) -> float:
    """Return the first instant of the plateau at which first turns crowd the engine no more than in its later half."""
    instants = np.unique(np.concatenate([times.due_s, times.end_s]))
    first = _running(times.due_s[times.first_turn], times.end_s[times.first_turn], instants)
    both = _running(times.due_s, times.end_s, instants)
    seconds = np.diff(instants, append=instants[-1])
    later = (instants >= (plateau_start_s + plateau_end_s) / 2) & (instants < plateau_end_s)
    busy = float(both[later] @ seconds[later])
    level = float(first[later] @ seconds[later]) / busy if busy else 0.0
    settled = instants[(instants >= plateau_start_s) & (first <= level * both)]
    return min(float(settled[0]), plateau_end_s) if len(settled) else plateau_start_s


def _running(starts: Floats, ends: Floats, at: Floats) -> npt.NDArray[np.int64]:
    """Count what has started and not ended at each instant."""
    begun, over = (np.searchsorted(np.sort(edge), at, side="right") for edge in (starts, ends))
    return (begun - over).astype(np.int64)


def _why(planned: bool, stampede_end_s: float, start_s: float, usual: float) -> str:
    settled = f"first turns stopped crowding the engine at {stampede_end_s:.1f} s"
    if not planned:
        return f"{settled}; it ends when fewer than {PLATEAU:.0%} of the usual {usual:.0f} sessions are left"
    begins = settled if start_s == stampede_end_s else f"it begins with the first counted request ({settled})"
    return f"{begins}; it ends with the last counted reply"
