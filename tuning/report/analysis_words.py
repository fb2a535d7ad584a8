"""What an analysis says in figures, the same in the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scenarios.analysis import Analysis, CacheUse
from tuning.report.words import count, duration

ROWS = 9
"""Sizes of a table of the curve, beside those that are marked."""
FIRST_HIT = 0.02
"""The table begins where this share of all possible hits is reached."""


@dataclass(frozen=True)
class CurveRow:
    """One size of cache."""

    tokens: int
    gb: float | None
    hit_rate: float
    marks: tuple[str, ...]
    """What has this size."""


def curve_rows(analysis: Analysis, cache: CacheUse) -> list[CurveRow]:
    """Choose sizes that show the curve: the marked ones and some between, evenly spread on a log scale."""
    curve, machine = cache.curve, analysis.machine
    marked: dict[int, list[str]] = {}
    for mark in cache.marks:
        marked.setdefault(mark.together_tokens, []).append(mark.pool or "device pool")
    if cache.reuse is not None:
        marked.setdefault(cache.knee_tokens, []).append("knee")
    marked.setdefault(round(curve.sizes_tokens[-1]), []).append("as good as endless")
    sizes, rates = np.array(curve.sizes_tokens), np.array(curve.hit_rates)
    first = sizes[int(np.searchsorted(rates, FIRST_HIT * rates[-1]))]
    between = np.geomspace(max(first, 1.0), max(sizes[-1], 1.0), ROWS)
    plain = {_rounded(size) for size in between if all(abs(size / each - 1) > 0.2 for each in marked if each)}
    return [
        CurveRow(size, machine.gb(size), curve.at(size), tuple(marked.get(size, ())))
        for size in sorted({*marked, *plain})
    ]


def facts(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Name what was counted, in pairs of a name and a figure."""
    arrivals, cache = analysis.arrivals, analysis.cache
    sessions = "sessions not told apart" if arrivals.sessions is None else f"{arrivals.sessions:,} sessions"
    yield "requests", f"{arrivals.requests:,} in {duration(arrivals.duration_s)} ({arrivals.times}), {sessions}"
    if arrivals.counted < arrivals.requests:
        yield "of these judged", f"{arrivals.counted:,}; the others fill the cache"
    yield (
        "prompt tokens",
        f"{count(arrivals.prompt_tokens)}; median {count(arrivals.median_prompt_tokens)}, "
        f"longest {count(arrivals.longest_prompt_tokens)}",
    )
    if cache is None:
        return
    own, others = cache.sharing.own_session, cache.sharing.other_sessions
    if own is None or others is None:
        yield "seen before", f"{1 - cache.sharing.new:.1%} of the prompt tokens"
    else:
        yield "seen before", f"{own:.1%} in the same session, {others:.1%} in other sessions alone"
    working_set = cache.working_set
    yield "unique tokens", count(working_set.unique_tokens[-1])
    yield "worth keeping", f"at most {count(working_set.peak_kept_tokens)} at a time (used before, and used again)"
    yield (
        f"used in {working_set.window_s:,.3g} s",
        f"at most {count(max(working_set.touched_tokens))} different tokens",
    )
    if cache.reuse is not None:
        at = dict(
            zip(cache.reuse.shares, zip(cache.reuse.time_s, cache.reuse.distance_tokens, strict=True), strict=True)
        )
        picks = [(0.1, "P10"), (0.5, "P50"), (0.9, "P90")]
        yield "used again after", ", ".join(f"{name} {at[q][0]:,.1f} s" for q, name in picks)
        yield "and other tokens", ", ".join(f"{name} {at[q][1]:,.0f}" for q, name in picks)


def bar(value: float, width: int) -> str:
    """Draw a share as a bar of blocks, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, value)) * width * 8)
    return "█" * (eighths // 8) + ("" if eighths % 8 == 0 else "▏▎▍▌▋▊▉"[eighths % 8 - 1])


def gb(value: float | None) -> str:
    """Write GB of one rank."""
    return "-" if value is None else f"{value:,.1f}"


def _rounded(size: float) -> int:
    """Round up to two digits: between marks no more is needed, and down would miss the step at `size`."""
    unit = 10.0 ** max(0, math.floor(math.log10(size)) - 1)
    return int(math.ceil(size / unit) * unit)
