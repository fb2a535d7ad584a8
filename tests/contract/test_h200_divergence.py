"""Loads of a real H200 server played back to the watch that looks while a load runs: which it stops, and how early."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.support.queues import Load
from tests.support.recordings import METRICS

pytestmark = pytest.mark.contract

NEVER_S = 1e6


def recorded(run: str) -> Load:
    """Read when requests were due and how long they waited; those that the end of the run cut wait on."""
    content = json.loads(gzip.decompress((METRICS / f"h200-0.5.15/rec_{run}.json.gz").read_bytes()))
    rows = [dict(zip(content["cols"], row, strict=True)) for row in content["rec"]]
    cut = [dict(zip(content["cut_cols"], row, strict=True)) for row in content["cut"]]
    return Load(
        [row["start"] for row in rows + cut],
        [row["ttft"] for row in rows] + [NEVER_S] * len(cut),
        [row["turn"] for row in rows + cut],
    )


def ended_s(load: Load) -> float:
    """When the last answered request had its first token."""
    pairs = zip(load.scheduled_s, load.ttft_s, strict=True)
    return max(at + wait for at, wait in pairs if wait < NEVER_S)


@pytest.mark.parametrize(("run", "within"), [("off", 0.75), ("off2", 0.55)])
def test_loads_that_diverged_are_stopped_early(run: str, within: float) -> None:
    """Both runs without HiCache grew slower until the end; a quarter and half of their time would have been spared."""
    load = recorded(run)
    stopped_s = load.stopped_s(until_s=ended_s(load))
    assert stopped_s is not None
    assert stopped_s < within * ended_s(load)


@pytest.mark.parametrize("run", ["wt60", "wb60", "wts60", "frac50"])
def test_loads_that_held_are_let_be(run: str) -> None:
    """Their cold first turns are no divergence either."""
    assert recorded(run).stopped_s() is None
