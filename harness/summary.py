"""What one load amounts to: TTFT by window, turn and tier, errors, throughput, and whether it was sustained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from pydantic import Field
from scipy import stats

from harness.load.record import Status
from harness.metrics import (
    LAST_TURNS,
    Breakdown,
    Goodput,
    Latency,
    MetricName,
    Slo,
    answered,
    breakdowns,
    goodput,
    latency,
    ttft_s,
)
from harness.metrics.definitions import ttft
from harness.throughput import answers_by_session
from harness.window import Window, find_window
from scenarios.plan import Phase
from scenarios.strict import StrictModel

DIVERGED_STEP = 1.5
"""How much the median TTFT must grow from one third of a load to the next, in both steps, to be called diverging.

A queue that grows evenly from nothing takes 5/3 in its second step, which is the upper bound. Divergence recorded
on an H200 takes 2.2 at least, steady loads there 1.1 at most. Simulated steady loads pass 1.5 in both steps in less
than 1 % of cases, and those of 64 users and more within 10 % of saturation, whose queue drifts widely, in 2.5 %.
"""
DIVERGED_P_VALUE = 0.001
DIVERGED_PART = 20
"""Requests that each third must have for a growth to be told from luck."""


class Summary(StrictModel):
    """One load in figures. `steady` is the headline: the counted sessions, played at full concurrency."""

    steady: Latency | None
    whole_run: Latency | None
    first_turns: Latency | None
    by_tier: dict[str, Latency]
    by_turn: dict[int, Latency]
    time_per_output_token: Latency | None
    metrics: dict[MetricName, Breakdown] = Field(default_factory=dict)
    """Every metric of the counted requests that has a value, by turn, tier and prompt length."""
    window: Window | None = None
    """The steady window as the times of the requests show it."""
    goodput: tuple[Goodput, ...] | None = None
    """Under each service level that was given; None when there was none."""
    steady_seconds: float
    requests_per_s: float
    """Answered in the window, also those of sessions that are not counted but run beside them."""
    output_tokens_per_s: float
    """Of the same requests."""
    counted: int
    ok: int
    failed: int
    timed_out: int
    cut: int
    """Requests of counted sessions that the end of the load cut; fillers are cut by design and not counted."""
    cancelled: int = 0
    """Replies that the user left in the middle, as the scenario says: no errors."""
    reconnected: int = 0
    """Of the counted requests, those sent again because the engine had closed the idle connection: no errors either."""
    not_played: int
    error_rate: float
    diverges: bool
    """Whether TTFT only grew during the steady window: such a setting is not sustainable."""


def summarise(records: pd.DataFrame, *, not_played: int, slos: Sequence[Slo] = ()) -> Summary:
    """Summarise the records of one load; `not_played` are counted turns that were never sent."""
    counted = records[records["phase"] == Phase.COUNTED]
    metrics = breakdowns(counted)
    of_ttft = metrics.get(MetricName.TTFT, Breakdown())
    status = Counter(counted["status"].astype(str))
    errors, answers = status[Status.FAILED] + status[Status.TIMEOUT], status[Status.OK] + status[Status.CANCELLED]
    seconds = span_s(counted)
    in_window = answers_by_session(records)
    judged = (goodput(counted, slo, seconds=seconds) for slo in slos)
    return Summary(
        steady=of_ttft.overall,
        whole_run=_whole_run(records),
        first_turns=of_ttft.by_turn.get("0"),
        by_tier=of_ttft.by_tier,
        by_turn={int(turn): each for turn, each in of_ttft.by_turn.items() if turn != LAST_TURNS},
        time_per_output_token=metrics.get(MetricName.TPOT, Breakdown()).overall,
        metrics=metrics,
        window=find_window(records),
        goodput=tuple(found for found in judged if found) if slos else None,
        steady_seconds=seconds,
        requests_per_s=float(in_window["requests"].sum()) / seconds if seconds else 0.0,
        output_tokens_per_s=float(in_window["output_tokens"].sum()) / seconds if seconds else 0.0,
        counted=len(counted) + not_played,
        ok=status[Status.OK],
        failed=status[Status.FAILED],
        timed_out=status[Status.TIMEOUT],
        cut=status[Status.CUT],
        cancelled=status[Status.CANCELLED],
        reconnected=int(counted["reconnected"].sum()),
        not_played=not_played,
        error_rate=errors / (errors + answers) if errors + answers else 0.0,
        diverges=diverges(counted[answered(counted)]),
    )


def diverges(ok: pd.DataFrame) -> bool:
    """Whether TTFT only grew: its median grows clearly from third to third of the scheduled times, in both steps.

    One step proves nothing: a load begins with empty caches and is easier there. First turns are left out where
    most requests are later ones: they are cold under every setting and lie in the first third, which they would
    make look slow enough to hide the growth after it.
    """
    later = ok[ok["turn"] > 0]
    compared = later if 2 * len(later) > len(ok) else ok
    first, middle, last = np.array_split(ttft_s(compared.sort_values("scheduled_ns")), 3)
    if len(last) < DIVERGED_PART:
        return False
    medians = [float(np.median(part)) for part in (first, middle, last)]
    grew = all(after > DIVERGED_STEP * before for before, after in pairwise(medians))
    return grew and float(stats.mannwhitneyu(last, middle, alternative="greater").pvalue) < DIVERGED_P_VALUE


def _whole_run(records: pd.DataFrame) -> Latency | None:
    sample = ttft(records)
    return latency(sample.values_s, records["session_id"].to_numpy(dtype=object)[sample.rows])


def span_s(records: pd.DataFrame) -> float:
    """Return the seconds from when the first of `records` was due to when the last one ended."""
    if records.empty:
        return 0.0
    return float(records["end_ns"].max() - records["scheduled_ns"].min()) / 1e9
