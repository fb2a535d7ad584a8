"""Kills at random moments against the real engine on CPU: a few in every run, 50 with `make chaos`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import cli
from tests.support.chaos import DETOKENIZER, HARNESS, LEADER, SCHEDULER, Chaos

pytestmark = [pytest.mark.chaos, pytest.mark.live, pytest.mark.timeout(7200)]

TRIALS = 2
ENOUGH_FOR_ALL = 20
SEARCH = (
    *("search", "--engine", "cpu", "--scenario", "cpu-smoke", "--sessions", "4", "--study", "s"),
    *("--trials", str(TRIALS), "--confirm-rounds", "0", "--page-size", "16"),
)


@dataclass(frozen=True)
class RealLife:
    """A search as a user starts it."""

    run: cli.Run

    @property
    def marker(self) -> str:
        """What every process of it carries."""
        return self.run.marker

    @property
    def pid(self) -> int:
        """The harness's pid."""
        return self.run.process.pid

    @property
    def exit_code(self) -> int | None:
        """As the command tells; 2, when kills have spoilt both tries of every setting, is a finished search too."""
        code = self.run.process.poll()
        assert code in (None, 0, 1, 2, -9), self.run.said()
        assert "Traceback" not in self.run.said(), self.run.said()
        return 0 if code == 2 else code

    def kill(self) -> None:
        """Kill the harness at once."""
        self.run.kill()


def begin(root: Path) -> RealLife:
    """Start the search of the study in `root`, or go on with it."""
    folder = root.parents[1]
    folder.mkdir(exist_ok=True)
    resume = ["--resume"] if (root / "study.json").exists() else []
    return RealLife(cli.start([*SEARCH, *resume], folder))


def test_kills_at_random_moments(tmp_path: Path, rounds: int | None) -> None:
    """Harness, leader, scheduler and detokenizer are killed; nothing is left, nothing is lost, the search ends."""
    kills = rounds or 2
    chaos = Chaos(
        study_of=lambda number: tmp_path / str(number) / "results" / "s",
        start=begin,
        victims=(HARNESS, LEADER, SCHEDULER, DETOKENIZER),
        trials=TRIALS,
        most_lives=kills + 3,
        span_s=25.0,
        seed=4,
    )
    chaos.rage(kills)
    assert chaos.kills.total() >= kills
    assert chaos.finished
    # Victims are found by the names that SGLang gives its processes; a few kills need not meet all of them.
    assert kills < ENOUGH_FOR_ALL or all(chaos.kills[victim] for victim in chaos.victims), chaos.kills
