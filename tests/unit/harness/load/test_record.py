"""Records on disk keep what was measured, to the nanosecond."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from harness.load.record import INTEGER_COLUMNS, RequestRecord, Status, read_records, write_records
from scenarios.plan import Phase
from tests.support.cases import case_folder, expected

LATE_NS = 2**62 + 1
"""A time that a float cannot hold."""


def record(ttft_ns: int | None, status: Status = Status.OK) -> RequestRecord:
    """Make a record sent at LATE_NS."""
    first = None if ttft_ns is None else LATE_NS + ttft_ns
    return RequestRecord("s", 0, Phase.COUNTED, status, LATE_NS, LATE_NS, LATE_NS + 9, first_token_ns=first)


def test_records_come_back_exactly(tmp_path: Path) -> None:
    """Times keep every nanosecond beside unknown values, which stay unknown."""
    write_records([record(3), record(None, Status.CUT)], tmp_path / "r.parquet")
    frame = read_records(tmp_path / "r.parquet")
    assert list(frame.sent_ns) == [LATE_NS, LATE_NS]
    assert frame.first_token_ns[0] == LATE_NS + 3
    assert frame.first_token_ns.isna().tolist() == [False, True]
    assert frame.status.tolist() == ["ok", "cut"]
    assert frame.error.isna().all()


def test_no_records_are_an_empty_frame_of_the_same_columns(tmp_path: Path) -> None:
    """A load that sent nothing can be read like any other."""
    write_records([], tmp_path / "none.parquet")
    write_records([record(1)], tmp_path / "one.parquet")
    none, one = read_records(tmp_path / "none.parquet"), read_records(tmp_path / "one.parquet")
    assert len(none) == 0
    assert none.dtypes.to_dict() == one.dtypes.to_dict()


def test_gaps_come_back_exactly(tmp_path: Path) -> None:
    """Gaps are lists of whole nanoseconds, of whatever kind of sequence, and a reply without any has none."""
    gaps: list[Sequence[int]] = [(1, LATE_NS), (), [7], array("q", [3, 4, 5])]
    write_records([replace(record(3), delta_gaps_ns=each) for each in gaps], tmp_path / "r.parquet")
    frame = read_records(tmp_path / "r.parquet")
    assert [each.tolist() for each in frame.delta_gaps_ns] == [list(each) for each in gaps]
    assert {each.dtype for each in frame.delta_gaps_ns} == {np.dtype(np.int64)}
    assert "delta_gaps_ns" not in INTEGER_COLUMNS


def test_records_of_before_a_column_was_kept_are_read(tmp_path: Path) -> None:
    """A file without gaps reads as one whose replies have none; nothing was known to be sent again."""
    path = tmp_path / "r.parquet"
    write_records([record(3), replace(record(4), reconnected=True)], path)
    now = read_records(path)
    assert now.reconnected.tolist() == [False, True]
    pd.read_parquet(path).drop(columns=["delta_gaps_ns", "reconnected"]).to_parquet(path)
    before = read_records(path)
    assert [len(each) for each in before.delta_gaps_ns] == [0, 0]
    assert before.reconnected.tolist() == [False, False]
    assert before.dtypes.to_dict() == now.dtypes.to_dict()


def test_case_49_percentiles_come_from_raw_samples(tmp_path: Path) -> None:
    """Two sets that Locust rounds to the same figure stay apart, and no percentile passes its maximum."""
    samples = json.loads((case_folder("49") / "samples_ms.json").read_text(encoding="utf-8"))
    p99_ms = {}
    for name, values_ms in samples.items():
        write_records([record(value * 1_000_000) for value in values_ms], tmp_path / name)
        frame = read_records(tmp_path / name)
        ttft_ms = (frame.first_token_ns - frame.sent_ns).to_numpy(dtype=np.int64) / 1e6
        assert ttft_ms.tolist() == values_ms
        p99_ms[name] = float(np.quantile(ttft_ms, 0.99))
    assert p99_ms["A"] <= expected("49")["a_p99_at_most"]
    assert (p99_ms["A"] != p99_ms["B"]) is expected("49")["a_vs_b_differ"]
