"""Request records for tests of statistics: single ones as they are needed, and whole loads drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from harness.load.record import RequestRecord, Status, read_records, write_records
from scenarios.plan import Phase

S = 10**9
BOOT_NS = 2**60
"""A host that has been up for decades: its nanoseconds do not fit into a float."""


def request(
    session: str = "s0",
    turn: int = 0,
    *,
    due_s: float = 0.0,
    ttft_s: float = 1.0,
    reply_s: float = 1.0,
    late_s: float = 0.0,
    status: Status = Status.OK,
    phase: Phase = Phase.COUNTED,
    **changes: Any,
) -> RequestRecord:
    """Make a request that was due at `due_s`, sent `late_s` later, and answered with 11 tokens over `reply_s`."""
    due_ns = BOOT_NS + round(due_s * S)
    first_ns = due_ns + round(ttft_s * S)
    last_ns = first_ns + round(reply_s * S)
    known: dict[str, Any] = {"output_tokens": 11}
    if status in (Status.OK, Status.CANCELLED, Status.TIMEOUT):
        known |= {"first_token_ns": first_ns, "last_token_ns": last_ns}
    sent_ns = due_ns + round(late_s * S)
    return RequestRecord(session, turn, phase, status, due_ns, sent_ns, last_ns, **(known | changes))


def frame_of(records: Sequence[RequestRecord], folder: Path) -> pd.DataFrame:
    """Make a frame as the harness reads it from disk, nullable integers included."""
    write_records(records, folder / "requests.parquet")
    return read_records(folder / "requests.parquet")


@st.composite
def loads(draw: st.DrawFn, *, most: int = 40) -> list[RequestRecord]:
    """Draw the records of a load in which everything that can be unknown sometimes is."""
    unknown_or_tokens = st.none() | st.integers(0, 5_000)
    count = draw(st.integers(1, most))
    return [
        request(
            f"s{draw(st.integers(0, 5))}",
            draw(st.integers(0, 14)),
            due_s=draw(st.floats(0, 100)),
            ttft_s=draw(st.floats(0.001, 30)),
            reply_s=draw(st.floats(0, 30)),
            late_s=draw(st.floats(0, 0.5)),
            status=draw(st.sampled_from(Status)),
            phase=draw(st.sampled_from(Phase)),
            output_tokens=draw(unknown_or_tokens),
            prompt_tokens=draw(unknown_or_tokens),
            cached_tokens=draw(unknown_or_tokens),
            host_cached_tokens=draw(unknown_or_tokens),
            delta_gaps_ns=tuple(draw(st.lists(st.integers(1, S), max_size=4))),
        )
        for _ in range(count)
    ]
