"""Kills at random moments against an engine that takes no time: often, in every run of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos import HARNESS, LEADER, SCHEDULER, Chaos
from tests.support.fake_search import FakeLife

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

TRIALS = 3


def test_kills_at_random_moments(tmp_path: Path, rounds: int | None) -> None:
    """Leader, scheduler and harness are killed 50 times; nothing is left, nothing is lost, every search ends."""
    kills = rounds or 50
    chaos = Chaos(
        study_of=lambda number: tmp_path / f"study-{number}",
        start=lambda root: FakeLife(root, TRIALS),
        victims=(HARNESS, LEADER, SCHEDULER),
        trials=TRIALS,
        most_lives=kills + 3,
        span_s=2.5,
        seed=4,
    )
    chaos.rage(kills)
    assert chaos.kills.total() >= kills
    assert chaos.finished
