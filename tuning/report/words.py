"""Figures as people read them, the same in the terminal and on the page. What is unknown is a dash, never a zero."""

from __future__ import annotations

from harness.statistics import CONFIDENT_P99_REQUESTS

UNKNOWN = "-"
FEW_REQUESTS = "*"
FEW_REQUESTS_NOTE = f"Fewer than {CONFIDENT_P99_REQUESTS} requests: a few slow ones decide this P99; see its interval"


def seconds(value_s: float | None) -> str:
    """Write a latency in seconds to the millisecond."""
    return UNKNOWN if value_s is None else f"{value_s:.3f}"


def span(low: float | None, high: float | None) -> str:
    """Write an interval of latencies in seconds."""
    return "no interval" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def share(value: float | None) -> str:
    """Write a share as a whole percentage; a share that is not zero is never shown as zero."""
    if value is None:
        return UNKNOWN
    return f"{value:.0%}" if value == 0 or value >= 0.01 else f"{value:.1%}" if value >= 0.001 else "<0.1%"


def share_span(low: float | None, high: float | None) -> str:
    """Write an interval of shares."""
    return "no interval" if low is None or high is None else f"[{low:.1%}, {high:.1%}]"


def change(value: float | None) -> str:
    """Write a relative change with its sign."""
    return UNKNOWN if value is None else f"{value:+.0%}"


def change_span(low: float | None, high: float | None) -> str:
    """Write an interval of relative changes."""
    return "no interval" if low is None or high is None else f"[{low:+.0%}, {high:+.0%}]"


def count(value: int | None) -> str:
    """Write a number of tokens or requests."""
    return UNKNOWN if value is None else f"{value:,}"


def gib(value_bytes: int | None) -> str:
    """Write bytes in GiB."""
    return UNKNOWN if value_bytes is None else f"{value_bytes / 2**30:.1f}"


def duration(value_s: float) -> str:
    """Write how long something took."""
    whole = round(value_s)
    return f"{whole} s" if whole < 1000 else f"{whole / 60:.0f} min"


def listing(numbers: list[int]) -> str:
    """Write `trial 3` or `trials 3, 5`."""
    return f"trial{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
