"""Under which conditions a study was measured, and how: the same words on the page and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from tuning.config import Search
from tuning.report import words
from tuning.report.data import StudyResult
from tuning.verdict import NEGLIGIBLE

NAMES = {
    "memory_gib": "memory, GiB",
    "gpus": "GPUs",
    "sglang_version": "SGLang",
    "copy_gb_per_s": "copy limit, GB/s",
    "tool_version": "hicache-tune",
}


def conditions(result: StudyResult, search: Search) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each condition."""
    for name, value in result.environment:
        if value is not None:
            yield NAMES.get(name, name), (", ".join(value) or "none") if isinstance(value, tuple) else str(value)
    yield "scenario", f"{result.scenario}, fingerprint {result.scenario_fingerprint}"
    yield "endpoint", search.api
    if search.engine_args:
        yield "fixed engine flags", " ".join(search.engine_args)
    yield "constraints", "; ".join(result.constraints) or "none"
    yield "seed", str(search.seed)
    for dimension in search.space.dimensions:
        yield f"searched {dimension.name}", dimension.values_text


def method(search: Search) -> Iterator[str]:
    """Yield how the figures came about, a sentence or more each."""
    sessions = search.scenario.sessions
    yield (
        f"Every trial launches a server of its own, with empty caches, and plays {sessions.counted} counted sessions "
        f"at {sessions.concurrency} a time. Warm-up sessions come before them and fillers keep the load up to the last "
        "counted reply; neither is compared."
    )
    yield (
        "Time to first token runs from the scheduled time of a request to its first non-empty delta. Quantiles come "
        "from the raw records of this steady window, not from histograms."
    )
    yield (
        "Requests of one session share its luck with the caches, so intervals resample whole sessions. The 95 % "
        "interval of a change against HiCache off holds; that of one P99 is too narrow where requests are few: of "
        "240, it holds the truth in about two cases of three."
    )
    yield (
        f"The best of many noisy trials looks better than it is. The search (seed {search.seed}) only chooses who is "
        "confirmed; the verdict comes from fresh seeds that every candidate plays alike. Changes against HiCache off "
        f"compare the same sessions; what differs by less than {words.share(NEGLIGIBLE)} is a tie, and of ties the "
        "smallest host pool wins."
    )
    yield (
        "Failed and timed-out requests count as errors and are never dropped. A setting that does not sustain the "
        "load, or breaks a constraint, may not win, whatever its P99."
    )
