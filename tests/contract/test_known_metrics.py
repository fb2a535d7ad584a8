"""The names that we say SGLang has are in recordings of it."""

from __future__ import annotations

import gzip

import pytest

from dashboards.known import SGLANG_HISTOGRAMS, SGLANG_MORE
from harness.engine.client import SETTLING_COUNTERS
from harness.engine.hang import WORK_COUNTERS
from tests.support.cases import DATA

pytestmark = pytest.mark.contract

ONLY_IN_0_5_23 = {
    "sglang:hicache_backup_bytes_total",
    "sglang:hicache_backup_duration_seconds",
    "sglang:hicache_dropped_tokens_total",
}
"""Read in its source; there is no recording."""


def recorded_types() -> dict[str, str]:
    """Read name and type of every metric in the recordings."""
    found = {}
    for path in (DATA / "metrics").rglob("*.txt.gz"):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                found[name] = kind
    return found


def test_names_are_recorded() -> None:
    """Every name but those of 0.5.23 was seen on a real engine, and histograms are histograms."""
    seen = recorded_types()
    assert (SGLANG_MORE | SGLANG_HISTOGRAMS) - seen.keys() == ONLY_IN_0_5_23
    assert {name for name in SGLANG_MORE & seen.keys() if seen[name] == "histogram"} == set()
    assert {name for name in SGLANG_HISTOGRAMS & seen.keys() if seen[name] != "histogram"} == set()


@pytest.mark.parametrize(("pattern", "newer"), [(SETTLING_COUNTERS, {"hicache_backup"}), (WORK_COUNTERS, set())])
def test_counters_that_show_work_are_recorded(pattern: str, newer: set[str]) -> None:
    """Each name in the patterns by which an engine is found idle or hung is one that it has."""
    words = set(pattern.partition("(?:")[2].partition(")")[0].split("|"))
    assert len(words) >= 6
    seen = {name for name, kind in recorded_types().items() if kind == "counter"}
    assert {word for word in words if f"sglang:{word}_tokens_total" not in seen} == newer
