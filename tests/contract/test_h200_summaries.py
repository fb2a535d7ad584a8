"""Summaries of what a real H200 server did, against the figures that were published of the same runs.

The records lie beside the scrapes of the same loads, in tests/data/metrics/h200-0.5.15.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from harness.load.record import RequestRecord, Status, read_records, write_records
from harness.metrics import ttft_s
from harness.statistics import Floats, quantile
from harness.summary import DIVERGED_STEP, Summary, diverges, summarise
from harness.window import find_window, with_phases
from scenarios.plan import Phase
from tests.support.recordings import METRICS

pytestmark = pytest.mark.contract

S = 10**9
QS = (0.5, 0.9, 0.99)


class Published(NamedTuple):
    """One row of the published table: P50, P90, P99 in seconds as printed, of all turns and of turns >= 1."""

    whole_run: tuple[str, str, str]
    later: tuple[str, str, str]
    done: int
    cut: int


TABLE = {
    "off": Published(("1.71", "6.72", "7.98"), ("2.32", "6.88", "8.14"), 322, 55),
    "off2": Published(("3.08", "10.44", "12.24"), ("4.42", "10.80", "12.31"), 411, 39),
    "wt60": Published(("0.096", "0.766", "2.24"), ("0.088", "0.177", "0.320"), 512, 0),
    "wb60": Published(("0.128", "0.449", "1.75"), ("0.117", "0.261", "0.402"), 512, 0),
    "wts60": Published(("0.098", "0.543", "1.80"), ("0.088", "0.177", "0.279"), 512, 0),
    "frac50": Published(("0.085", "0.468", "1.77"), ("0.079", "0.140", "0.255"), 512, 0),
}
UNSUSTAINED = ("off", "off2")
STEADY = ("wt60", "wb60", "wts60", "frac50")


def recorded(run: str, folder: Path) -> pd.DataFrame:
    """Read one recorded load as the harness would have written it, the cut requests included."""
    content = json.loads(gzip.decompress((METRICS / f"h200-0.5.15/rec_{run}.json.gz").read_bytes()))
    rows = (dict(zip(content["cols"], row, strict=True)) for row in content["rec"])
    cut = (dict(zip(content["cut_cols"], row, strict=True)) for row in content["cut"])
    records = [
        RequestRecord(
            f"user{row['u']}",
            row["turn"],
            Phase.COUNTED,
            Status.OK,
            round(row["start"] * S),
            round(row["start"] * S),
            end_ns=round((row["start"] + row["e2e"]) * S),
            first_token_ns=round((row["start"] + row["ttft"]) * S),
            last_token_ns=round((row["start"] + row["e2e"]) * S),
            prompt_tokens=row["prompt"],
            output_tokens=row["completion"],
            cached_tokens=row["cached"],
            device_cached_tokens=row["device"],
            host_cached_tokens=row["host"],
        )
        for row in rows
    ]
    for row in cut:
        start_ns, end_ns = round(row["start"] * S), round((row["start"] + row["age"]) * S)
        records.append(
            RequestRecord(f"user{row['u']}", row["turn"], Phase.COUNTED, Status.CUT, start_ns, start_ns, end_ns)
        )
    write_records(records, folder / "requests.parquet")
    return read_records(folder / "requests.parquet")


@pytest.fixture
def summary(request: pytest.FixtureRequest, tmp_path: Path) -> Summary:
    """Summarise the run that the test is parametrised with."""
    return summarise(recorded(request.param, tmp_path), not_played=0)


def answered_ttft_s(run: str, folder: Path, *, first_turn: int) -> Floats:
    """Return the TTFT of the answered requests from turn `first_turn` on."""
    frame = recorded(run, folder)
    return ttft_s(frame[(frame["status"] == Status.OK) & (frame["turn"] >= first_turn)])


@pytest.mark.parametrize("run", TABLE)
@pytest.mark.parametrize("part", ["whole_run", "later"])
def test_our_quantiles_are_those_of_the_published_table(run: str, part: str, tmp_path: Path) -> None:
    """The table takes the next slower request; ours lie between it and the one before, as interpolation must.

    Printed digits are matched by the table's own method, which proves that the same requests are compared.
    """
    sample = answered_ttft_s(run, tmp_path, first_turn=0 if part == "whole_run" else 1)
    printed: tuple[str, ...] = getattr(TABLE[run], part)
    for q, text in zip(QS, printed, strict=True):
        slower, quicker = (float(np.quantile(sample, q, method=method)) for method in ("higher", "lower"))
        half_digit = 0.5 * 10.0 ** -len(text.partition(".")[2])
        assert slower == pytest.approx(float(text), abs=1.001 * half_digit)
        assert quicker <= quantile(sample, q) <= slower


@pytest.mark.parametrize(("summary", "run"), [(run, run) for run in TABLE], indirect=["summary"])
def test_a_summary_counts_what_the_run_answered_and_cut(summary: Summary, run: str) -> None:
    """Answered and cut requests are as published; a cut one is no error."""
    assert (summary.ok, summary.cut, summary.failed, summary.error_rate) == (TABLE[run].done, TABLE[run].cut, 0, 0.0)
    assert summary.steady is not None
    assert summary.steady == summary.whole_run


@pytest.mark.parametrize("summary", UNSUSTAINED, indirect=True)
def test_the_runs_without_hicache_are_not_sustainable(summary: Summary) -> None:
    """Their median TTFT grew from turn to turn until the end, in both repetitions."""
    assert summary.diverges


@pytest.mark.parametrize("summary", STEADY, indirect=True)
def test_the_runs_that_held_are_sustainable(summary: Summary) -> None:
    """With a host pool, or with all KV on the device, TTFT did not grow."""
    assert not summary.diverges


@pytest.mark.parametrize(("run", "grows"), [*((run, True) for run in UNSUSTAINED), *((run, False) for run in STEADY)])
def test_the_step_stands_well_between_divergence_and_steadiness(run: str, grows: bool, tmp_path: Path) -> None:
    """No recorded run is within a quarter of the step that tells them apart."""
    frame = recorded(run, tmp_path)
    later = frame[(frame["status"] == Status.OK) & (frame["turn"] >= 1)].sort_values("scheduled_ns")
    first, middle, last = (float(np.median(part)) for part in np.array_split(ttft_s(later), 3))
    least_step = min(middle / first, last / middle)
    assert (least_step > 1.25 * DIVERGED_STEP) if grows else (least_step < DIVERGED_STEP / 1.25)


@pytest.mark.parametrize("run", UNSUSTAINED)
def test_the_stampede_of_first_turns_does_not_hide_the_divergence(run: str, tmp_path: Path) -> None:
    """Even with first turns three times as slow as they were, the later ones show the growth."""
    frame = recorded(run, tmp_path)
    first_turns = frame["turn"] == 0
    waited_ns = frame["first_token_ns"] - frame["scheduled_ns"]
    frame.loc[first_turns, "first_token_ns"] += 2 * waited_ns[first_turns]
    assert diverges(frame[frame["status"] == Status.OK])


@pytest.mark.parametrize(
    ("run", "steady_p90_s"), [("wt60", 0.177), ("wb60", 0.261), ("wts60", 0.177), ("frac50", 0.140)]
)
def test_the_steady_window_is_found_from_times_alone(run: str, steady_p90_s: float, tmp_path: Path) -> None:
    """The published split, though no plan says which requests are steady: P90 of 0.17 s where P99 was above 2 s.

    The window also leaves out the ramp-down, which the table's turns >= 1 hold, and so may differ by a tenth.
    """
    found = summarise(with_phases(recorded(run, tmp_path)), not_played=0)
    assert found.window is not None
    assert found.steady is not None
    assert found.whole_run is not None
    assert found.whole_run.p99_s > 1.7
    assert found.steady.p90_s == pytest.approx(steady_p90_s, rel=0.11)
    assert found.steady.max_s < 0.5
    assert found.first_turns is None, "the cold stampede lies outside"
    assert found.steady.count > 300


@pytest.mark.parametrize("run", TABLE)
def test_the_window_lies_between_stampede_and_ramp_down(run: str, tmp_path: Path) -> None:
    """All 64 users came within 8 s and had their first token by 13 s; where they finished, the load then ran out."""
    frame = recorded(run, tmp_path)
    found = find_window(frame)
    assert found is not None
    assert found.usual_sessions == 64
    assert 7 < found.plateau_start_s < 8
    first_turns_s = (frame[frame["turn"] == 0]["end_ns"].max() - frame["scheduled_ns"].min()) / S
    assert found.plateau_start_s < found.start_s <= first_turns_s < 14
    last_s = (frame["end_ns"].max() - frame["scheduled_ns"].min()) / S
    assert (found.end_s > 0.95 * last_s) if run in UNSUSTAINED else (35 < found.end_s < 45 < last_s)


@pytest.mark.parametrize("run", UNSUSTAINED)
def test_a_load_that_diverges_does_so_within_its_steady_window(run: str, tmp_path: Path) -> None:
    """Without the stampede and the ramp-down the growth is as clear."""
    assert summarise(with_phases(recorded(run, tmp_path)), not_played=0).diverges


@pytest.mark.parametrize(("summary", "host"), [("wt60", True), ("frac50", False)], indirect=["summary"])
def test_later_turns_are_served_from_the_tier_that_holds_them(summary: Summary, host: bool) -> None:
    """A host pool serves many turns; with all KV on the device none comes from elsewhere."""
    assert ("host" in summary.by_tier) is host
    assert "storage" not in summary.by_tier
