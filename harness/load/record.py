"""One request, as the client saw it, and the outcome of one load.

Times are integer nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scenarios.plan import Phase


class Status(enum.StrEnum):
    """How a request ended."""

    OK = "ok"
    FAILED = "failed"
    """Refused, an error inside the stream, a broken connection, or an end without a token."""
    TIMEOUT = "timeout"
    CUT = "cut"
    """Still running when the load ended; counted and shown, neither good nor bad."""
    CANCELLED = "cancelled"
    """The user left in the middle of the reply, as the scenario says: its first token counts, its end does not."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. None means unknown, never zero."""

    session_id: str
    turn: int
    phase: Phase
    status: Status
    scheduled_ns: int
    sent_ns: int
    end_ns: int
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    chunks: int = 0
    """Non-empty deltas."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    device_cached_tokens: int | None = None
    host_cached_tokens: int | None = None
    storage_cached_tokens: int | None = None
    http_status: int | None = None
    error: str | None = None
    delta_gaps_ns: Sequence[int] = ()
    """Times between successive non-empty deltas: one fewer than `chunks`, whatever each delta carried."""
    reconnected: bool = False
    """Sent again on a new connection, because the engine had closed the idle one that it was first sent on."""


INTEGER_COLUMNS = tuple(f.name for f in fields(RequestRecord) if f.type in ("int", "int | None"))
GAPS_COLUMN = "delta_gaps_ns"
LATER_COLUMNS = {GAPS_COLUMN: np.empty(0, np.int64), "reconnected": False}
_DTYPES = {"int": "Int64", "int | None": "Int64", "bool": "bool"}


def write_records(records: Sequence[RequestRecord], path: Path) -> None:
    """Write `records` as Parquet, one row a request, in the order in which they ended."""
    # Column by column with its dtype: integers beside None would pass through floats and lose nanoseconds.
    columns = {f.name: _column(f.name, str(f.type), records) for f in fields(RequestRecord)}
    pd.DataFrame(columns).to_parquet(path, index=False)


def read_records(path: Path) -> pd.DataFrame:
    """Read a frame with the columns of RequestRecord; integers are nullable Int64, gaps are arrays of int64.

    Columns that the file does not have, because it is older than they are, are filled with their defaults.
    """
    frame = pd.read_parquet(path)
    for name, default in LATER_COLUMNS.items():
        if name not in frame:
            frame[name] = pd.Series([default] * len(frame), dtype=object if name == GAPS_COLUMN else "bool")
    return frame


def _column(name: str, kind: str, records: Sequence[RequestRecord]) -> pd.Series[Any]:
    values = [getattr(record, name) for record in records]
    if name == GAPS_COLUMN:
        return pd.Series([np.asarray(gaps, dtype=np.int64) for gaps in values], dtype=object)
    return pd.Series(values, dtype=_DTYPES.get(kind, "str"))
