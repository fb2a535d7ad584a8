"""Every metric of a request: what it is, and its raw values.

Each is a function from request records to a sample: values in seconds, and the rows that they belong to.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.load.record import GAPS_COLUMN, Status
from harness.statistics import Floats

NS_PER_S = 1e9

Rows = npt.NDArray[np.int64]


class MetricName(enum.StrEnum):
    """What a metric is called in files, constraints and tables."""

    TTFT = "ttft"
    TTFT_FROM_SENT = "ttft_from_sent"
    TPOT = "tpot"
    ITL = "itl"
    E2E = "e2e"
    CLIENT_DELAY = "client_delay"


@dataclass(frozen=True)
class Sample:
    """Raw values of one metric. `rows[i]` is the position of the request that value i belongs to."""

    values_s: Floats
    rows: Rows


@dataclass(frozen=True)
class Metric:
    """One metric: its name, what people read, and its values."""

    name: MetricName
    title: str
    meaning: str
    sample: Callable[[pd.DataFrame], Sample]


def answered(records: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Tell which requests count for TTFT: those answered in full, and those whose user left in the middle."""
    return records["status"].isin([Status.OK, Status.CANCELLED]).to_numpy() & _known(records, "first_token_ns")


def ttft(records: pd.DataFrame) -> Sample:
    """Time to first token, from when the request was due to its first non-empty delta (design rules 1 and 2)."""
    return _between(records, "scheduled_ns", "first_token_ns", answered(records))


def ttft_from_sent(records: pd.DataFrame) -> Sample:
    """Time to first token, from when the request was really sent: what the engine alone can be blamed for."""
    return _between(records, "sent_ns", "first_token_ns", answered(records))


def tpot(records: pd.DataFrame) -> Sample:
    """Time per output token after the first: a mean over the reply, so only of whole replies of two tokens or more."""
    tokens = records["output_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    several = (records["status"] == Status.OK).to_numpy() & _known(records, "last_token_ns") & (tokens > 1)
    spans = _between(records, "first_token_ns", "last_token_ns", several)
    return Sample(spans.values_s / (tokens[spans.rows] - 1), spans.rows)


def itl(records: pd.DataFrame) -> Sample:
    """Inter-token latency: the gaps between successive deltas of all replies, pooled.

    A delta may carry several tokens; it is one gap all the same, as the user sees it arrive at once.
    """
    rows = np.flatnonzero(answered(records))
    gaps = records[GAPS_COLUMN].to_numpy()[rows]
    lengths = np.fromiter(map(len, gaps), dtype=np.int64, count=len(gaps))
    pooled = np.concatenate(gaps) if lengths.any() else np.empty(0, dtype=np.int64)
    return Sample(pooled / NS_PER_S, np.repeat(rows, lengths))


def e2e(records: pd.DataFrame) -> Sample:
    """End-to-end latency, from when the request was due to the end of its whole reply."""
    return _between(records, "scheduled_ns", "end_ns", (records["status"] == Status.OK).to_numpy())


def client_delay(records: pd.DataFrame) -> Sample:
    """How late our own client sent, of every request that it sent, however that ended."""
    return _between(records, "scheduled_ns", "sent_ns", np.ones(len(records), dtype=bool))


METRICS = (
    Metric(MetricName.TTFT, "TTFT", "from when it was due to the first token", ttft),
    Metric(MetricName.TTFT_FROM_SENT, "TTFT from sent", "from when it was sent to the first token", ttft_from_sent),
    Metric(MetricName.TPOT, "TPOT", "mean time per token after the first, of one reply", tpot),
    Metric(MetricName.ITL, "ITL", "gaps between successive deltas, pooled", itl),
    Metric(MetricName.E2E, "End to end", "from when it was due to the end of the reply", e2e),
    Metric(MetricName.CLIENT_DELAY, "Our own delay", "from when it was due to when our client sent it", client_delay),
)


def ttft_s(records: pd.DataFrame) -> Floats:
    """Return the time to first token from the scheduled time, in seconds (design rule 2), of answered requests."""
    return (records["first_token_ns"] - records["scheduled_ns"]).to_numpy(dtype=np.float64) / NS_PER_S


def _known(records: pd.DataFrame, column: str) -> npt.NDArray[np.bool_]:
    return records[column].notna().to_numpy()


def _between(records: pd.DataFrame, start: str, end: str, chosen: npt.NDArray[np.bool_]) -> Sample:
    """Subtract as integers: nanoseconds since boot do not fit into a float."""
    rows = np.flatnonzero(chosen)
    starts, ends = (records[column].to_numpy(dtype=np.int64, na_value=0)[rows] for column in (start, end))
    return Sample((ends - starts) / NS_PER_S, rows)
