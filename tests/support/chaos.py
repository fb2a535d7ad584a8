"""Kills what belongs to a search at random moments, and checks that nothing is left and nothing is lost.

An engine outlives its killed harness only in the seconds in which its children do not heed the death of their leader
yet, or when they ignore SIGTERM; the next life finds it by pid and start time, and ends it before anything else.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from harness.engine.ledger import Owned
from harness.store import Outcome, TrialRecord, read_trials
from tests.support import cli

HARNESS, LEADER, SCHEDULER, DETOKENIZER = "harness", "leader", "::scheduler", "::detokenizer"
GONE_LIMIT_S = 60.0


class Life(Protocol):
    """One process that searches, from its start to its end."""

    @property
    def marker(self) -> str:
        """What every process that it starts carries in its environment."""

    @property
    def pid(self) -> int:
        """The harness's pid."""

    @property
    def exit_code(self) -> int | None:
        """Return 0 for a finished search, 1 for one that its engine has stopped, None while it runs."""

    def kill(self) -> None:
        """Kill the harness at once and wait for its end."""


@dataclass
class Chaos:
    """Makes chaos of one study after the other; the same seed does the same as far as the machine allows."""

    study_of: Callable[[int], Path]
    """Returns the folder of the study with this number."""
    start: Callable[[Path], Life]
    """Starts a search of the study in a folder, or goes on with it."""
    victims: Sequence[str]
    trials: int
    """Settings that a finished study has measured."""
    most_lives: int
    """So many lives are enough for any study; more mean that the search cannot go on."""
    span_s: float
    """A kill follows the one before, or the start, within so many seconds."""
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    finished: int = 0
    _markers: list[str] = field(default_factory=list)
    _sessions: set[Owned] = field(default_factory=set)
    """Every engine that was seen. SGLang's processes lose their environment, and the marker, when they take a title."""

    def rage(self, kills: int) -> None:
        """Kill so often; every study is then finished, and every one was searched as if nothing had happened."""
        rng = random.Random(self.seed)
        while self.kills.total() < kills:
            self._one_study(rng, kills)

    def _one_study(self, rng: random.Random, kills: int) -> None:
        root = self.study_of(self.finished)
        life, lives = self._begin(root), 1
        try:
            while life.exit_code != 0:
                if life.exit_code is not None:
                    assert lives < self.most_lives, f"{root}: not finished in {lives} lives"
                    life, lives = self._begin(root), lives + 1
                if self.kills.total() < kills:
                    self._kill_one(life, root, rng)
                else:
                    self._note_engine(root)
                    time.sleep(0.05)
        finally:
            if life.exit_code is None:
                life.kill()
        self._check_finished(root)
        self.finished += 1

    def _begin(self, root: Path) -> Life:
        life = self.start(root)
        self._markers.append(life.marker)
        return life

    def _kill_one(self, life: Life, root: Path, rng: random.Random) -> None:
        """Kill one victim, if it is there, at a random moment; what is on disk stays readable."""
        victim, moment = rng.choice(self.victims), time.monotonic() + rng.uniform(0, self.span_s)
        while life.exit_code is None and time.monotonic() < moment:
            self._note_engine(root)
            time.sleep(0.02)
        if life.exit_code is None and self._strike(life, root, victim):
            read_trials(root)

    def _strike(self, life: Life, root: Path, victim: str) -> bool:
        """Kill the victim; False when there is none at this moment."""
        if victim == HARNESS:
            life.kill()
            self._note_engine(root)
        elif (process := self._find(root, victim)) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        else:
            return False
        self.kills[victim] += 1
        return True

    def _check_finished(self, root: Path) -> None:
        self._wait_nothing_left()
        records = read_trials(root)
        assert not (root / "running.json").exists()
        assert len({record.number for record in records}) == len(records)
        assert len({record.setting.key for record in records}) == self.trials, [_about(r) for r in records]
        assert not any(record.outcome is Outcome.INTERRUPTED for record in records)
        assert all(record.hygiene.stop is None or record.hygiene.stop.clean for record in records)

    def _wait_nothing_left(self) -> None:
        """Wait until no process of any life is left; fail with what is left."""
        deadline = time.monotonic() + GONE_LIMIT_S
        while left := self._left():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.1)
        self._markers.clear()
        self._sessions.clear()

    def _left(self) -> list[str]:
        carriers = [line for marker in self._markers for line in cli.carrying(marker)]
        return carriers + [str(process) for owned in self._sessions for process in owned.members()]

    def _note_engine(self, root: Path) -> Owned | None:
        """Remember the engine that runs now; None when there is none."""
        try:
            owned = Owned(**json.loads((root / "running.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None
        self._sessions.add(owned)
        return owned

    def _find(self, root: Path, victim: str) -> psutil.Process | None:
        """Find the leader of the engine that runs now, or its process with such a title."""
        if (owned := self._note_engine(root)) is None:
            return None
        for process in owned.members():
            with contextlib.suppress(psutil.Error):
                if process.pid == owned.pid if victim == LEADER else any(victim in word for word in process.cmdline()):
                    return process
        return None


def _about(record: TrialRecord) -> str:
    return f"{record.number} {record.setting.label}: {record.outcome} {record.reason[:80]}"
