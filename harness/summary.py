"""What one load amounts to: TTFT by window, turn and tier, errors, throughput, and whether it was sustained."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from harness.load.record import Status
from harness.statistics import CONFIDENT_P99_REQUESTS, Floats, Sessions, quantile
from scenarios.plan import Phase
from scenarios.strict import StrictModel

NS_PER_S = 1e9
DIVERGED_STEP = 1.5
"""How much the median TTFT must grow from one third of a load to the next, in both steps, to be called diverging.

A queue that grows evenly from nothing takes 5/3 in its second step, which is the upper bound. Divergence recorded
on an H200 takes 2.2 at least, steady loads there 1.1 at most. Simulated steady loads pass 1.5 in both steps in less
than 1 % of cases, and those of 64 users and more within 10 % of saturation, whose queue drifts widely, in 2.5 %.
"""
DIVERGED_P_VALUE = 0.001
DIVERGED_PART = 20
"""Requests that each third must have for a growth to be told from luck."""


class Latency(StrictModel):
    """Quantiles of one latency over one group of requests, in seconds."""

    count: int
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float
    p99_low_s: float | None = None
    p99_high_s: float | None = None
    confident: bool = False
    """Whether there are enough requests for a P99 to be taken at its word."""


class Summary(StrictModel):
    """One load in figures. `steady` is the headline: the counted sessions, played at full concurrency."""

    steady: Latency | None
    whole_run: Latency | None
    first_turns: Latency | None
    by_tier: dict[str, Latency]
    by_turn: dict[int, Latency]
    time_per_output_token: Latency | None
    steady_seconds: float
    requests_per_s: float
    output_tokens_per_s: float
    counted: int
    ok: int
    failed: int
    timed_out: int
    cut: int
    """Requests of counted sessions that the end of the load cut; fillers are cut by design and not counted."""
    not_played: int
    error_rate: float
    diverges: bool
    """Whether TTFT only grew during the steady window: such a setting is not sustainable."""


def ttft_s(records: pd.DataFrame) -> Floats:
    """Return the time to first token from the scheduled time, in seconds (design rule 2)."""
    return (records["first_token_ns"] - records["scheduled_ns"]).to_numpy(dtype=np.float64) / NS_PER_S


def served_from(records: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Name the slowest tier that each prompt's cached tokens came from: storage, host, device, none or unknown."""
    tiers = {
        "storage": records["storage_cached_tokens"],
        "host": records["host_cached_tokens"],
        "device": records["device_cached_tokens"],
    }
    known = records["cached_tokens"].notna()
    conditions = [(column.fillna(0) > 0).to_numpy() for column in tiers.values()]
    nothing = (known & (records["cached_tokens"].fillna(0) == 0)).to_numpy()
    return np.select([*conditions, nothing], [*tiers, "none"], default="unknown").astype(object)


def latency(values: Floats, sessions: npt.NDArray[np.object_]) -> Latency | None:
    """Summarise one latency; None when there is no value, which is not the same as zero."""
    if len(values) == 0:
        return None
    interval = Sessions(values, sessions).interval(0.99)
    return Latency(
        count=len(values),
        p50_s=quantile(values, 0.50),
        p90_s=quantile(values, 0.90),
        p95_s=quantile(values, 0.95),
        p99_s=quantile(values, 0.99),
        max_s=float(values.max()),
        p99_low_s=interval.low if interval else None,
        p99_high_s=interval.high if interval else None,
        confident=len(values) >= CONFIDENT_P99_REQUESTS,
    )


def summarise(records: pd.DataFrame, *, not_played: int) -> Summary:
    """Summarise the records of one load; `not_played` are counted turns that were never sent."""
    counted = records[records["phase"] == Phase.COUNTED]
    ok, whole_ok = (frame[frame["status"] == Status.OK] for frame in (counted, records))
    tier, by_status = served_from(ok), Counter(counted["status"].astype(str))
    failed, timed_out, cut = (by_status[status] for status in (Status.FAILED, Status.TIMEOUT, Status.CUT))
    seconds = _span_s(counted)
    ended = len(ok) + failed + timed_out
    return Summary(
        steady=_ttft(ok),
        whole_run=_ttft(whole_ok),
        first_turns=_ttft(ok[ok["turn"] == 0]),
        by_tier={name: found for name in sorted(set(tier)) if (found := _ttft(ok[tier == name]))},
        by_turn={int(turn): found for turn in sorted(ok["turn"].unique()) if (found := _ttft(ok[ok["turn"] == turn]))},
        time_per_output_token=_tpot(ok),
        steady_seconds=seconds,
        requests_per_s=len(ok) / seconds if seconds else 0.0,
        output_tokens_per_s=float(ok["output_tokens"].fillna(0).sum()) / seconds if seconds else 0.0,
        counted=len(counted) + not_played,
        ok=len(ok),
        failed=failed,
        timed_out=timed_out,
        cut=cut,
        not_played=not_played,
        error_rate=(failed + timed_out) / ended if ended else 0.0,
        diverges=diverges(ok),
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


def _ttft(records: pd.DataFrame) -> Latency | None:
    return latency(ttft_s(records), records["session_id"].to_numpy(dtype=object))


def _tpot(ok: pd.DataFrame) -> Latency | None:
    several = ok[ok["output_tokens"].fillna(0) > 1]
    spans = (several["last_token_ns"] - several["first_token_ns"]).to_numpy(dtype=np.float64) / NS_PER_S
    return latency(
        spans / (several["output_tokens"].to_numpy(dtype=np.float64) - 1),
        several["session_id"].to_numpy(dtype=object),
    )


def _span_s(records: pd.DataFrame) -> float:
    if records.empty:
        return 0.0
    return float(records["end_ns"].max() - records["scheduled_ns"].min()) / NS_PER_S
