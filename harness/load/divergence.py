"""Whether a load only gets slower while it runs, so that it can be stopped long before its end.

The rule is that of the summary (`harness.summary.diverges`), which looks once, at a load that has ended. Here it is
asked again and again in the middle of one, and that takes two precautions.

The youngest requests say nothing yet: under overload all that are known of them are the quick ones. So only requests
up to the frontier are compared, behind which most are still waiting; before it, one that still waits counts with its
waiting time so far.

Who looks often sees growth that is none. So the rule must hold several times in a row, each time over a tenth more
requests, and not before the load has run for a while. `tests/support/queues.py` simulates what that is worth. Of 200
steady loads of 64 users at 90, 100 and 110 % of saturation none is stopped; of random arrivals at 80 % of the capacity
2 %, at 90 % 7.5 %. Of arrivals at 120 % of the capacity 90 % are stopped, at 150 % 98 %, after a third of their time.
Both loads that diverged on an H200 are stopped, after 52 of 70 s and 54 of 105 s, and none of the four that held.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.load.report import Answered, Waiting
from harness.summary import DIVERGED_PART, diverges

LOOKS_IN_A_ROW = 4
NEW_DATA = 1.1
"""How many times as many requests the next look needs."""
FRONTIER_REQUESTS = 20
"""The frontier is where half of so many requests in a row are answered."""
NS_PER_S = 1e9


class Divergence:
    """Looks at the counted requests of a load, again and again."""

    def __init__(self, least_s: float) -> None:
        self._least_ns = least_s * NS_PER_S
        self._answered: list[Answered] = []
        self._first_ns: int | None = None
        self._looked_at = 0
        self._in_a_row = 0

    def add(self, answered: Sequence[Answered]) -> None:
        """Take requests whose first token has come since the last call."""
        self._answered += answered

    def look(self, now_ns: int, waiting: Sequence[Waiting]) -> bool:
        """Say whether the load diverges, as far as is known now; `waiting` are all requests without a first token."""
        requests = len(self._answered) + len(waiting)
        if requests < max(3 * DIVERGED_PART, NEW_DATA * self._looked_at):
            return False
        known = _up_to_the_frontier(self._table(now_ns, waiting))
        began_ns = int(known["scheduled_ns"].min()) if len(known) else now_ns
        if now_ns - began_ns < self._least_ns or len(known) < NEW_DATA * self._looked_at:
            return False
        self._looked_at = len(known)
        self._in_a_row = self._in_a_row + 1 if diverges(known) else 0
        return self._in_a_row >= LOOKS_IN_A_ROW

    def _table(self, now_ns: int, waiting: Sequence[Waiting]) -> pd.DataFrame:
        """List all requests in the order in which they were due; one that waits has waited until now at least."""
        columns = {
            "turn": [r.turn for r in self._answered] + [r.turn for r in waiting],
            "scheduled_ns": [r.scheduled_ns for r in self._answered] + [r.scheduled_ns for r in waiting],
            "first_token_ns": [r.scheduled_ns + r.ttft_ns for r in self._answered] + [now_ns] * len(waiting),
            "answered": [True] * len(self._answered) + [False] * len(waiting),
        }
        return pd.DataFrame(columns).sort_values("scheduled_ns", kind="stable", ignore_index=True)


def _up_to_the_frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the youngest requests, of which most still wait."""
    answered = np.concatenate(([0], np.cumsum(table["answered"].to_numpy(dtype=np.int64))))
    in_each_window: npt.NDArray[np.int64] = answered[FRONTIER_REQUESTS:] - answered[:-FRONTIER_REQUESTS]
    half_answered = np.flatnonzero(2 * in_each_window >= FRONTIER_REQUESTS)
    return table.iloc[: half_answered[-1] + FRONTIER_REQUESTS if len(half_answered) else 0]
