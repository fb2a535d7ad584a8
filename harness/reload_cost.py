"""What it costs to bring KV back: from the client's records, where the engine's own timer cannot be trusted.

A request's TTFT is taken apart into what every request waits for, what each uncached token takes to compute, and what
reloading takes: a fixed part and a part for each reloaded token. The fit is robust (soft L1), because queueing throws
single requests far off; its intervals resample whole sessions. Under load all parts hold the waiting behind others
who compute or reload, which is what users feel; `hicache-tune verify` measures the same on an idle engine.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares

from harness.metrics import answered
from harness.statistics import CONFIDENCE, Floats
from harness.telemetry import CacheDelta
from scenarios.plan import Phase
from scenarios.strict import StrictModel

NS_PER_S = 1e9
FEW_HITS = 30
"""Requests with and without a reload that a fit needs of each."""
RESAMPLES = 200
SCALE_S = 0.02
"""Residuals beyond this count linearly: the size of the waits that are not queueing."""
BANDS_TOKENS = (0, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


class Estimate(StrictModel):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class AddedTtft(StrictModel):
    """Host hits of one band of reloaded tokens, against requests that reloaded nothing, at equal uncached length."""

    from_tokens: int
    to_tokens: int | None
    count: int
    p50_s: float
    p99_s: float


class ReloadCost(StrictModel):
    """The reloads of one load, or of several of one setting. None means that it is not known, never zero."""

    reloads: int | None
    """Copies in 0.5.23, requests that reloaded in 0.5.15."""
    tokens: int | None
    bytes: int | None
    kv_bytes_per_token: int | None = None
    """Over all layers and the ranks that share a token."""
    transfer_s: float | None
    """Time in which copies ran; 0.5.15 does not measure it."""
    bytes_per_s: float | None
    """Over the time in which copies ran."""
    mean_bytes_per_s: float | None
    """Over the whole load."""
    felt_bytes_per_s: Estimate | None = None
    """As fast as the client sees a longer reload to be, waiting included; None where a token shows no cost."""
    pcie_ceiling_bytes_per_s: float | None = None
    """What the links of all used GPUs carry in one direction; None when no GPU told."""
    write_amplification: float | None
    """Tokens written to the host for each token that was read back; 0.5.15 does not count writes."""
    eviction_s: float | None
    eviction_share: float | None
    """Part of the load in which an eviction blocked the scheduler."""
    compute_s_per_token: Estimate | None
    reload_s_per_token: Estimate | None
    reload_fixed_s: Estimate | None
    break_even_tokens: float | None
    """Reloading more tokens than this is faster than computing them; None where no such length is known."""
    break_even_high_tokens: float | None = None
    """The upper end of its 95 % interval; None: that end is no length at all. The lower end is often 0."""
    break_even_low_tokens: float | None = None
    added_ttft: tuple[AddedTtft, ...] = ()


def reload_cost(
    records: pd.DataFrame,
    *deltas: CacheDelta,
    kv_bytes_per_token: int | None,
    pcie_ceiling_bytes_per_s: float | None = None,
) -> ReloadCost:
    """Add up what the reloads of one load cost, or of several of one setting, whose sessions differ by name.

    `kv_bytes_per_token` is over all layers and the ranks that share a token.
    """
    seconds = sum(delta.end_ns - delta.start_ns for delta in deltas) / NS_PER_S
    copied = _sum(_bytes(delta, kv_bytes_per_token) for delta in deltas)
    transfer_s = _sum(None if d.load_back_seconds_is_bookkeeping else d.load_back_seconds for d in deltas)
    written, read = _sum(d.backup_tokens for d in deltas), _sum(d.host_cached_tokens for d in deltas)
    eviction_s = _sum(d.eviction_seconds for d in deltas)
    fit = _Fit.of(records)
    low, high = fit.break_even_span() if fit else (None, None)
    return ReloadCost(
        reloads=_whole(_sum(d.load_back_count for d in deltas)),
        tokens=_whole(_sum(d.load_back_tokens for d in deltas)),
        bytes=_whole(copied),
        kv_bytes_per_token=kv_bytes_per_token,
        transfer_s=transfer_s,
        bytes_per_s=copied / transfer_s if copied and transfer_s else None,
        mean_bytes_per_s=copied / seconds if copied is not None and seconds else None,
        felt_bytes_per_s=_speed(fit.estimate(2), kv_bytes_per_token) if fit else None,
        pcie_ceiling_bytes_per_s=pcie_ceiling_bytes_per_s,
        write_amplification=written / read if written is not None and read else None,
        eviction_s=eviction_s,
        eviction_share=eviction_s / seconds if eviction_s is not None and seconds else None,
        compute_s_per_token=fit.estimate(1) if fit else None,
        reload_s_per_token=fit.estimate(2) if fit else None,
        reload_fixed_s=fit.estimate(3) if fit else None,
        break_even_tokens=fit.break_even_tokens() if fit else None,
        break_even_low_tokens=low,
        break_even_high_tokens=high,
        added_ttft=added_ttft(records, fit.coefficients[1]) if fit else (),
    )


def added_ttft(records: pd.DataFrame, compute_s_per_token: float) -> tuple[AddedTtft, ...]:
    """Compare host hits with requests that reloaded nothing, after taking off what their uncached tokens took."""
    seen = _Requests.of(records)
    rest_s = seen.ttft_s - compute_s_per_token * seen.uncached
    without = rest_s[seen.reloaded == 0]
    if len(without) < FEW_HITS:
        return ()
    base_p50, base_p99 = np.quantile(without, 0.5), np.quantile(without, 0.99)
    found = []
    for low, high in zip(BANDS_TOKENS, (*BANDS_TOKENS[1:], None), strict=True):
        inside = rest_s[(seen.reloaded > low) & ((seen.reloaded <= high) if high is not None else True)]
        if len(inside) >= FEW_HITS:
            p50_s, p99_s = np.quantile(inside, 0.5) - base_p50, np.quantile(inside, 0.99) - base_p99
            found.append(
                AddedTtft(from_tokens=low, to_tokens=high, count=len(inside), p50_s=float(p50_s), p99_s=float(p99_s))
            )
    return tuple(found)


class _Requests:
    """The counted requests that were answered and whose tiers are known, as columns."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.ttft_s: Floats = (frame["first_token_ns"] - frame["scheduled_ns"]).to_numpy(dtype=np.float64) / NS_PER_S
        cached = frame["cached_tokens"].to_numpy(dtype=np.float64)
        self.uncached: Floats = frame["prompt_tokens"].to_numpy(dtype=np.float64) - cached
        storage = frame["storage_cached_tokens"].fillna(0).to_numpy(dtype=np.float64)
        self.reloaded: Floats = frame["host_cached_tokens"].to_numpy(dtype=np.float64) + storage
        self.sessions = frame["session_id"].to_numpy(dtype=object).astype(str)

    @classmethod
    def of(cls, records: pd.DataFrame) -> _Requests:
        known = records[["first_token_ns", "prompt_tokens", "cached_tokens", "host_cached_tokens"]].notna().all(axis=1)
        return cls(records[known & (records["phase"] == Phase.COUNTED) & answered(records)])

    @property
    def design(self) -> Floats:
        """One row a request: 1, uncached tokens, reloaded tokens, whether anything was reloaded."""
        return np.column_stack(
            [np.ones(len(self.ttft_s)), self.uncached, self.reloaded, (self.reloaded > 0).astype(float)]
        )


class _Fit:
    """The robust fit and its resamples; columns as in `_Requests.design`."""

    def __init__(self, coefficients: Floats, resampled: Floats) -> None:
        self.coefficients, self._resampled = coefficients, resampled

    @classmethod
    def of(cls, records: pd.DataFrame) -> _Fit | None:
        seen = _Requests.of(records)
        hits = int((seen.reloaded > 0).sum())
        if min(hits, len(seen.ttft_s) - hits) < FEW_HITS:
            return None
        design, ttft_s = seen.design, seen.ttft_s
        found = _solve(design, ttft_s, None)
        names, codes = np.unique(seen.sessions, return_inverse=True)
        rng = np.random.default_rng(0)
        drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES)
        return cls(found, np.array([_solve(design, ttft_s, times[codes], start=found) for times in drawn]))

    def estimate(self, column: int) -> Estimate:
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(self._resampled[:, column], [tail, 1 - tail])
        return Estimate(value=float(self.coefficients[column]), low=float(low), high=float(high))

    def break_even_tokens(self) -> float | None:
        """Return the length at which both take as long; None when computing is not clearly slower for each token.

        A reload that surely saves time is none either: who reloaded had waited less than the others to begin with.
        """
        _, compute, reload, fixed = self.coefficients
        saved = self._resampled[:, 1] - self._resampled[:, 2]
        if np.quantile(saved, (1 - CONFIDENCE) / 2) <= 0:
            return None
        if self.estimate(2).high < 0 or self.estimate(3).high < 0:
            return None
        return max(0.0, float(fixed / (compute - reload)))

    def break_even_span(self) -> tuple[float | None, float | None]:
        """Return the interval of the break-even length; no upper end where some resamples know no such length."""
        if self.break_even_tokens() is None:
            return None, None
        saved, fixed = self._resampled[:, 1] - self._resampled[:, 2], self._resampled[:, 3]
        lengths = np.full(len(saved), np.inf)
        np.divide(fixed, saved, out=lengths, where=saved > 0)
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(np.maximum(lengths, 0.0), [tail, 1 - tail], method="nearest")
        return float(low), float(high) if np.isfinite(high) else None


def _solve(design: Floats, ttft_s: Floats, times: npt.NDArray[np.int64] | None, start: Floats | None = None) -> Floats:
    """Fit by least squares of the soft L1 norm; `times` is how often each request was drawn."""
    rows = slice(None) if times is None else np.repeat(np.arange(len(ttft_s)), times)
    columns, wanted = design[rows], ttft_s[rows]
    scale = np.maximum(np.abs(columns).max(axis=0), 1.0)  # tokens and seconds differ by four orders of magnitude
    first = np.zeros(columns.shape[1]) if start is None else start * scale
    scaled = columns / scale

    def residuals(at: Floats) -> Floats:
        return np.asarray(scaled @ at - wanted, dtype=np.float64)

    def jacobian(_: Floats) -> Floats:
        return np.asarray(scaled, dtype=np.float64)

    found = least_squares(residuals, first, jac=jacobian, loss="soft_l1", f_scale=SCALE_S)
    return np.asarray(found.x / scale, dtype=np.float64)


def _bytes(delta: CacheDelta, kv_bytes_per_token: int | None) -> int | None:
    if delta.load_back_bytes is not None:
        return delta.load_back_bytes
    if delta.load_back_tokens is None or kv_bytes_per_token is None:
        return None
    return delta.load_back_tokens * kv_bytes_per_token


def _speed(s_per_token: Estimate, bytes_per_token: int | None) -> Estimate | None:
    """Turn seconds a token into bytes a second; None unless the whole interval is a cost."""
    if bytes_per_token is None or s_per_token.low <= 0:
        return None
    return Estimate(
        value=bytes_per_token / s_per_token.value,
        low=bytes_per_token / s_per_token.high,
        high=bytes_per_token / s_per_token.low,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Add up what every load tells; None when one of them does not."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
