"""Loads that race against the best one so far."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.load.job import Rival, Stopped
from harness.load.lookout import Lookout
from harness.load.race import FALSE_STOPS, LEAST_REQUESTS, LOOKS, MARGIN, Race
from harness.load.report import Answered, Report
from harness.statistics import Floats
from tests.support.loads import bare_job, chat_session, plan_of
from tests.support.races import Shape, race, stopped, write_rival

S = 10**9
SESSIONS, TURNS = 50, 6


@pytest.fixture
def base_s() -> Floats:
    """Draw what each request of a load takes."""
    rng = np.random.default_rng(1)
    return rng.lognormal(0, 0.3, (SESSIONS, 1)) * rng.lognormal(0, 0.5, (SESSIONS, TURNS))


@pytest.fixture
def rival(base_s: Floats, tmp_path: Path) -> Rival:
    """Write the trial to beat."""
    return write_rival(base_s, tmp_path / "requests.parquet")


def test_a_setting_that_takes_twice_as_long_is_stopped_at_the_first_look(base_s: Floats, rival: Rival) -> None:
    """What is told of it is the rival's P99 times the change, as if the whole load had been played."""
    lost = stopped(rival, 2 * base_s)
    assert lost is not None
    assert lost.sessions == round(LOOKS[0] * SESSIONS)
    assert lost.rival == 3
    assert lost.change == pytest.approx(1.0)
    assert lost.change_low == pytest.approx(1.0)
    assert lost.p99_s == pytest.approx(2 * rival.p99_s)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1 + MARGIN / 2])
def test_a_setting_that_is_better_or_hardly_worse_is_played_to_the_end(
    base_s: Floats, rival: Rival, factor: float
) -> None:
    """Within the margin it may be luck, however sure the difference is."""
    assert stopped(rival, factor * base_s) is None


def test_only_sessions_that_were_played_whole_are_compared(base_s: Floats, rival: Rival) -> None:
    """A first turn is cold with every setting: one session less its last turn says nothing yet."""
    running = Race(rival)
    for session, turns in enumerate(2 * base_s):
        whole = TURNS if session < round(LOOKS[0] * SESSIONS) - 1 else TURNS - 1
        running.add([Answered(n, 0, round(turns[n] * S), f"s{session}") for n in range(whole)])
    assert running.look() is None
    last = Answered(TURNS - 1, 0, S, f"s{SESSIONS - 1}")
    running.add([last])
    assert running.look() is not None


def test_sessions_of_another_plan_are_not_compared(rival: Rival) -> None:
    """Neither are turns that the rival did not answer."""
    running = Race(rival)
    running.add([Answered(n, 0, 99 * S, f"other{session}") for session in range(99) for n in range(TURNS)])
    running.add([Answered(TURNS, 0, 99 * S, "s0")])
    assert running.look() is None


def test_a_p99_of_a_few_requests_stops_nothing(tmp_path: Path) -> None:
    """It is the slowest of them alone."""
    sessions = LEAST_REQUESTS // TURNS
    base_s = np.ones((sessions, TURNS))
    assert stopped(write_rival(base_s, tmp_path / "requests.parquet"), 9 * base_s) is None


def test_a_look_is_taken_once(base_s: Floats, rival: Rival) -> None:
    """Looking at the same sessions every second would stop far too often."""
    running = Race(rival)
    half = round(LOOKS[0] * SESSIONS)
    for session in range(half):
        running.add([Answered(n, 0, round(base_s[session, n] * S), f"s{session}") for n in range(TURNS)])
    assert running.look() is None
    running._mine = {session: dict.fromkeys(range(TURNS), 99.0) for session in running._mine}
    assert running.look() is None


@pytest.mark.parametrize(("sessions", "turns"), [(24, 6), (60, 8)])
def test_an_equal_setting_is_seldom_stopped(tmp_path: Path, sessions: int, turns: int) -> None:
    """Less than 5 % of 200 loads, though their rival is the luckiest of ten; docs/statistics.md has larger numbers."""
    lost = [race(Shape(sessions, turns), 1.0, seed, tmp_path) for seed in range(200)]
    assert sum(each is not None for each in lost) < FALSE_STOPS * len(lost)


def test_the_lookout_ends_a_load_that_is_surely_worse(base_s: Floats, rival: Rival) -> None:
    """Seen from all processes together, and with what it was worse by."""
    plan = plan_of(*(chat_session(f"s{session}", TURNS) for session in range(SESSIONS)))
    lookout = Lookout(bare_job(stop_when_diverging=False, rival=rival), plan, processes=2)
    for session, turns in enumerate(2 * base_s):
        answers = [Answered(n, 0, round(seconds * S), f"s{session}") for n, seconds in enumerate(turns)]
        lookout.hear(session % 2, Report(counted_left=1, answered=answers))
        if lookout.why_stop(0) is Stopped.SURELY_WORSE:
            break
    assert session + 1 == round(LOOKS[0] * SESSIONS)
    assert lookout.lost is not None
    assert lookout.lost.rival == 3


def test_without_a_rival_nothing_is_compared(base_s: Floats) -> None:
    """A baseline, and whatever is confirmed, is played to its end."""
    plan = plan_of(chat_session("s0", TURNS))
    lookout = Lookout(bare_job(stop_when_diverging=False), plan)
    lookout.hear(0, Report(counted_left=1, answered=[Answered(0, 0, 99 * S, "s0")] * 500))
    assert lookout.why_stop(0) is None
    assert lookout.lost is None
