"""Whether a setting is surely worse than the best one so far, so that its load need not be played to the end.

Both play the same sessions word for word, so their P99 is compared over the sessions that both have played, request by
request, with an interval that resamples sessions. A session counts once all turns that the rival answered are answered
here too: what is still waiting could only make this setting slower.

Who looks more than once stops more often by chance. So there are few looks, and the chance of a false stop that is
allowed in all is divided between them (Bonferroni), which holds however the looks hang together. The difference must
also pass a margin, as a trial as a whole has its luck too, and the rival is the luckiest of many. What that is worth
is simulated by `tests/support/races.py`, with the figures in docs/statistics.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from harness.load.job import Lost, Rival
from harness.load.record import read_records
from harness.load.report import Answered
from harness.metrics import answered, ttft_s
from harness.statistics import Floats, Sessions, draws
from scenarios.plan import Phase

LOOKS = (0.4, 0.6, 0.8)
"""Shares of the rival's sessions; later ones save too little."""
FALSE_STOPS = 0.05
"""The chance that a setting as good as the rival is stopped, over all looks, is below this."""
MARGIN = 0.1
"""How much worse the setting must surely be."""
LEAST_REQUESTS = 100
"""From fewer requests a P99 is their slowest one alone."""
QUANTILE = 0.99


class Race:
    """Compares the counted requests of a load with those of its rival, as they come."""

    def __init__(self, rival: Rival) -> None:
        frame = read_records(rival.requests_path)
        counted = frame[frame["phase"] == Phase.COUNTED]
        told = counted[answered(counted)]
        self._rival = rival
        self._theirs: dict[str, dict[int, float]] = defaultdict(dict)
        for session, turn, seconds in zip(told["session_id"], told["turn"], ttft_s(told), strict=True):
            self._theirs[str(session)][int(turn)] = float(seconds)
        self._mine: dict[str, dict[int, float]] = {session: {} for session in self._theirs}
        self._played: list[str] = []
        self._looks = [round(share * len(self._theirs)) for share in LOOKS]

    def add(self, requests: Sequence[Answered]) -> None:
        """Take requests whose first token has come since the last call."""
        for request in requests:
            theirs = self._theirs.get(request.session_id, {})
            if request.turn in theirs:
                mine = self._mine[request.session_id]
                mine[request.turn] = request.ttft_ns / 1e9
                if len(mine) == len(theirs):
                    self._played.append(request.session_id)

    def look(self) -> Lost | None:
        """Say by how much the setting is surely worse, if it is; asked anew only when a share of sessions is there."""
        if not self._looks or len(self._played) < max(2, self._looks[0]):
            return None
        self._looks = [least for least in self._looks if least > len(self._played)]
        requests = [(session, turn) for session in self._played for turn in self._theirs[session]]
        if len(requests) < LEAST_REQUESTS:
            return None
        session_of = np.array([session for session, _ in requests], dtype=object)
        mine, theirs = (
            Sessions(np.array([side[session][turn] for session, turn in requests]), session_of)
            for side in (self._mine, self._theirs)
        )
        low = float(np.quantile(_changes(mine, theirs), FALSE_STOPS / len(LOOKS)))
        if low <= MARGIN:
            return None
        change = mine.quantile(QUANTILE) / theirs.quantile(QUANTILE) - 1
        return Lost(
            rival=self._rival.trial,
            sessions=len(self._played),
            change=change,
            change_low=low,
            p99_s=self._rival.p99_s * (1 + max(change, low)),
        )


def _changes(mine: Sessions, theirs: Sessions) -> Floats:
    """Resample the relative change of the P99, the same sessions for both."""
    drawn = draws(mine.units, 0)
    return mine.resampled(QUANTILE, drawn) / theirs.resampled(QUANTILE, drawn) - 1
