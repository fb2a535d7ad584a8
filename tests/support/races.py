"""Loads that race against the best one so far, simulated: how often an equal setting is stopped, and a worse one.

`python -m tests.support.races` prints the table of docs/statistics.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.load.job import Lost, Rival
from harness.load.race import Race
from harness.load.record import RequestRecord, Status, write_records
from harness.load.report import Answered
from harness.statistics import Floats
from scenarios.plan import Phase

S = 10**9
SESSION_SIGMA, REQUEST_SIGMA = 0.3, 0.5
"""How much sessions differ, and requests of a session: the same for every setting, as all play the same ones."""
LUCK_SIGMA, TRIAL_SIGMA = 0.3, 0.03
"""How much a request varies from trial to trial, and a trial as a whole."""
OF = 10
"""The rival is the luckiest of so many equal trials."""


@dataclass(frozen=True)
class Shape:
    """A load of so many sessions of so many turns."""

    sessions: int
    turns: int


def trial(base_s: Floats, factor: float, rng: np.random.Generator) -> Floats:
    """Play the requests of `base_s` once, with a setting that takes `factor` of the time."""
    as_a_whole = rng.lognormal(0, TRIAL_SIGMA)
    return base_s * factor * as_a_whole * rng.lognormal(0, LUCK_SIGMA, base_s.shape)


def race(shape: Shape, factor: float, seed: int, folder: Path) -> Lost | None:
    """Race a setting that takes `factor` of the time of `OF` equal ones against the best of them."""
    rng = np.random.default_rng(seed)
    size = (shape.sessions, shape.turns)
    base_s = rng.lognormal(0, SESSION_SIGMA, (shape.sessions, 1)) * rng.lognormal(0, REQUEST_SIGMA, size)
    best_s = min((trial(base_s, 1.0, rng) for _ in range(OF)), key=lambda ttft_s: float(np.quantile(ttft_s, 0.99)))
    return stopped(write_rival(best_s, folder / f"{seed}.parquet"), trial(base_s, factor, rng))


def write_rival(ttft_s: Floats, path: Path) -> Rival:
    """Write the requests of the trial to beat: sessions by turns."""
    write_records([_record(session, turn, seconds) for (session, turn), seconds in np.ndenumerate(ttft_s)], path)
    return Rival(trial=3, requests_path=path, p99_s=float(np.quantile(ttft_s, 0.99)))


def stopped(rival: Rival, ttft_s: Floats) -> Lost | None:
    """Answer session after session, and look after each."""
    running = Race(rival)
    for session, turns in enumerate(ttft_s):
        running.add([Answered(n, 0, round(seconds * S), f"s{session}") for n, seconds in enumerate(turns)])
        if lost := running.look():
            return lost
    return None


def _record(session: int, turn: int, seconds: float) -> RequestRecord:
    first_ns = round(seconds * S)
    return RequestRecord(f"s{session}", turn, Phase.COUNTED, Status.OK, 0, 0, first_ns, first_ns, first_ns)


def report(runs: int) -> Iterator[str]:
    """Yield one line for each kind of load and setting."""
    with tempfile.TemporaryDirectory() as folder:
        for shape in (Shape(24, 6), Shape(60, 8), Shape(200, 8)):
            for factor in (1.0, 1.05, 1.2, 1.5, 2.0):
                found = [race(shape, factor, seed, Path(folder)) for seed in range(runs)]
                lost = [each for each in found if each is not None]
                played = np.mean([each.sessions / shape.sessions if each else 1.0 for each in found])
                yield (
                    f"{shape.sessions} sessions of {shape.turns} turns, {factor - 1:+.0%}: {len(lost) / runs:.1%} of "
                    f"{runs} are stopped; {played:.0%} of the sessions are played on average"
                )


if __name__ == "__main__":
    for line in report(int(sys.argv[1]) if len(sys.argv) > 1 else 200):
        sys.stdout.write(line + "\n")
