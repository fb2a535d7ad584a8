"""How much is answered in the window of a load, and by which sessions.

The window is that of the counted requests. What is left of the warm-up and the fillers that follow are answered by
the same engine at the same time, so their answers count too: the counted ones alone are about half of what an H200
answered in the windows of docs/evidence. See docs/statistics.md.
"""

from __future__ import annotations

import pandas as pd

from harness.load.record import Status
from scenarios.plan import Phase

COLUMNS = ("requests", "output_tokens", "seconds")


def answers_by_session(records: pd.DataFrame) -> pd.DataFrame:
    """Return what each session that lived in the window was answered there, a row a session, by session id.

    `requests` and `output_tokens` are counts. `seconds` is the session's part of the window, by how long it lived in
    it, so that the sum over sessions is the window's length, and the ratio of two sums is a throughput.
    """
    counted = records[records["phase"] == Phase.COUNTED]
    start_ns, end_ns = counted["scheduled_ns"].min(), counted["end_ns"].max()
    if counted.empty or end_ns <= start_ns:
        return pd.DataFrame(columns=list(COLUMNS), index=pd.Index([], dtype=object, name="session_id"), dtype=float)
    answered = records["status"].isin([Status.OK, Status.CANCELLED]) & records["end_ns"].between(start_ns, end_ns)
    rows = pd.DataFrame(
        {
            "session_id": records["session_id"],
            "requests": answered.astype(float),
            "output_tokens": records["output_tokens"].astype(float).fillna(0.0) * answered,
            "from_ns": records["scheduled_ns"].clip(lower=start_ns),
            "to_ns": records["end_ns"].clip(upper=end_ns),
        }
    )
    found = rows.groupby("session_id").agg(
        {"requests": "sum", "output_tokens": "sum", "from_ns": "min", "to_ns": "max"}
    )
    lived_ns = (found["to_ns"] - found["from_ns"]).astype(float).clip(lower=0.0)
    found["seconds"] = lived_ns * ((end_ns - start_ns) / 1e9 / lived_ns.sum())
    return found.loc[lived_ns > 0, list(COLUMNS)]
