"""The answered requests of a load as plain figures, and how two loads compare over equal sessions (design rule 13)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from harness.load.record import read_records
from harness.metrics import answered, ttft_s
from harness.statistics import Interval, Quantile, Sessions, compare
from harness.store import TrialRecord, requests_path
from scenarios.plan import Phase

KEYS = ["session", "turn"]
COLUMNS = [*KEYS, "ttft_s"]


def answers_of(root: Path, record: TrialRecord) -> pd.DataFrame:
    """Return the TTFT in seconds of the counted requests that were answered, by session and turn.

    Sessions of different seeds are different ones. A trial without a load has no answers.
    """
    path = requests_path(root, record)
    if not path.exists():
        return pd.DataFrame({"session": pd.Series(dtype=str), "turn": pd.Series(dtype=int), "ttft_s": []})
    frame = read_records(path)
    counted = frame[frame["phase"] == Phase.COUNTED]
    judged = counted[answered(counted)]
    return pd.DataFrame(
        {
            "session": f"{record.seed}/" + judged["session_id"].astype(str),
            "turn": judged["turn"],
            "ttft_s": ttft_s(judged),
        }
    )


def sessions_of(answers: pd.DataFrame) -> Sessions:
    """Group the TTFT of `answers` by session."""
    return Sessions(answers["ttft_s"].to_numpy(dtype=np.float64), answers["session"].to_numpy(dtype=object))


def shared_turns(mine: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Keep the turns of sessions that both sides have."""
    shared = pd.MultiIndex.from_frame(mine[KEYS]).intersection(pd.MultiIndex.from_frame(theirs[KEYS]))
    kept = [side[np.asarray(pd.MultiIndex.from_frame(side[KEYS]).isin(shared))] for side in (mine, theirs)]
    return kept[0], kept[1]


def change(mine: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, Interval | None] | None:
    """Return the P99 of `mine` relative to that of `theirs` over the requests that both answered; None without any."""
    mine, theirs = shared_turns(mine, theirs)
    if mine.empty:
        return None
    found = compare(Quantile(sessions_of(theirs), 0.99), Quantile(sessions_of(mine), 0.99))
    return None if found.relative is None else (found.relative, found.relative_interval)
