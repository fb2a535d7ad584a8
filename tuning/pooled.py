"""Several measurements of one setting as one: the quantiles of all their requests together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness.load.record import read_records
from harness.metrics import Breakdown, MetricName, breakdowns
from harness.store import TrialRecord, requests_path
from scenarios.plan import Phase


def pooled(records: Sequence[TrialRecord], root: Path) -> TrialRecord:
    """Return the last of `records` with the latencies of all of them; what is no latency stays its own.

    The records are usable trials of one setting on different seeds, whose sessions are different ones.
    """
    last = records[-1]
    if last.summary is None:
        raise ValueError(f"trial {last.number} has no summary")
    metrics = breakdowns(pd.concat([_counted(record, root) for record in records], ignore_index=True))
    latencies = {"metrics": metrics, "steady": metrics.get(MetricName.TTFT, Breakdown()).overall}
    return last.model_copy(update={"summary": last.summary.model_copy(update=latencies)})


def _counted(record: TrialRecord, root: Path) -> pd.DataFrame:
    frame = read_records(requests_path(root, record))
    counted = frame[frame["phase"] == Phase.COUNTED]
    return counted.assign(session_id=f"{record.seed}/" + counted["session_id"].astype(str))
