"""The steady window, found from the times of requests alone."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from harness.load.record import RequestRecord
from harness.window import Window, find_window, with_phases
from scenarios.plan import Phase
from tests.support.requests import frame_of, loads, request

SLOTS, TURNS = 10, 5
TURN_S = 2.0
"""From one turn to the next, of which a quick request takes a quarter."""


def window_of(records: list[RequestRecord], folder: Path) -> Window:
    """Find the window of a load that has requests."""
    found = find_window(frame_of(records, folder))
    assert found is not None
    return found


def session(name: str, start_s: float, *, first_s: float = 0.4, turns: int = TURNS) -> list[RequestRecord]:
    """Make a session whose first turn takes `first_s` and each later one half a second."""
    first = request(name, 0, due_s=start_s, ttft_s=first_s, reply_s=0.1)
    after_s = start_s + first_s + 0.1
    later = [request(name, n, due_s=after_s + (n - 0.75) * TURN_S, ttft_s=0.4, reply_s=0.1) for n in range(1, turns)]
    return [first, *later]


def closed_load(*, sessions_a_slot: int, stampede_s: float) -> list[RequestRecord]:
    """Make a load of slots that all start at once, cold, and then play one session after the other."""
    records = []
    for slot in range(SLOTS):
        at_s = 0.05 * slot
        for n in range(sessions_a_slot):
            # Slots are out of step from the second session on, as they are after a warm-up.
            turns = TURNS if n else 1 + slot % TURNS
            played = session(f"{slot}/{n}", at_s, first_s=stampede_s if n == 0 else 0.6, turns=turns)
            records += played
            at_s = (played[-1].end_ns - request().scheduled_ns) / 1e9 + 0.01
    return records


def test_a_stampede_is_left_out(tmp_path: Path) -> None:
    """First turns that all come at once take 5 s each; the window begins when they no longer crowd the engine."""
    found = window_of(closed_load(sessions_a_slot=6, stampede_s=5.0), tmp_path)
    assert found.usual_sessions == SLOTS
    assert found.plateau_start_s < 0.5
    assert 5.0 <= found.stampede_end_s <= 6.5
    assert found.start_s == found.stampede_end_s


def test_a_ramp_down_is_left_out(tmp_path: Path) -> None:
    """Three sessions that go on alone are no load at full concurrency, however long they last."""
    load = closed_load(sessions_a_slot=6, stampede_s=0.5)
    full_s = min(max(r.end_ns for r in load if r.session_id.startswith(f"{slot}/")) for slot in range(SLOTS))
    alone = [each for n in range(3) for each in session(f"late{n}", 70, turns=60)]
    found = window_of([*load, *alone], tmp_path)
    assert found.end_s == found.plateau_end_s
    assert found.end_s < 70
    assert found.end_s >= (full_s - load[0].scheduled_ns) / 1e9
    assert found.counted_outside >= len(alone)


def test_a_ramp_up_is_left_out(tmp_path: Path) -> None:
    """While sessions still arrive the load is not at its level, though their first turns are quick."""
    load = [each for slot in range(SLOTS) for each in session(f"{slot}", 3.0 * slot, turns=40)]
    found = window_of(load, tmp_path)
    assert found.plateau_start_s == pytest.approx(3.0 * (SLOTS - 2))
    assert found.start_s >= found.plateau_start_s


def test_an_open_load_swings_within_its_window(tmp_path: Path) -> None:
    """Poisson arrivals: the number of sessions swings by more than a tenth all the time, and the window is whole."""
    arrivals_s = np.cumsum(np.random.default_rng(3).exponential(1.0, 300))
    load = [each for n, at_s in enumerate(arrivals_s.tolist()) for each in session(f"{n}", at_s)]
    found = window_of(load, tmp_path)
    assert found.start_s < 20
    assert found.end_s > arrivals_s[-1] - 20
    assert found.counted_outside < 0.1 * len(load)


def test_sessions_of_one_turn_have_no_stampede(tmp_path: Path) -> None:
    """Where every request is a first turn their share says nothing, and the plateau is the window."""
    load = [request(f"{n}", due_s=0.1 * n, ttft_s=1.0, reply_s=1.0) for n in range(200)]
    found = window_of(load, tmp_path)
    assert (found.start_s, found.end_s) == (found.plateau_start_s, found.plateau_end_s)


def test_a_plan_tells_where_the_counted_requests_are(tmp_path: Path) -> None:
    """With warm-up and fillers the window lies from the first counted request to the last counted reply."""
    load = closed_load(sessions_a_slot=6, stampede_s=5.0)
    phases = [Phase.WARMUP, Phase.WARMUP, Phase.COUNTED, Phase.COUNTED, Phase.FILLER, Phase.FILLER]
    planned = [replace(r, phase=phases[int(r.session_id[-1])]) for r in load]
    found = window_of(planned, tmp_path)
    counted = [r for r in planned if r.phase is Phase.COUNTED]
    start_ns = load[0].scheduled_ns
    assert found.start_s == (min(r.scheduled_ns for r in counted) - start_ns) / 1e9
    assert found.end_s == (max(r.end_ns for r in counted) - start_ns) / 1e9
    assert found.counted_outside == 0
    assert "first counted request" in found.why


def test_counted_requests_in_a_stampede_are_shown(tmp_path: Path) -> None:
    """A plan whose warm-up was too short has counted requests among the cold first turns."""
    load = closed_load(sessions_a_slot=6, stampede_s=5.0)
    phases = [Phase.COUNTED, *[Phase.COUNTED] * 3, Phase.FILLER, Phase.FILLER]
    found = window_of([replace(r, phase=phases[int(r.session_id[-1])]) for r in load], tmp_path)
    assert found.start_s == found.stampede_end_s
    assert found.counted_outside >= SLOTS


def test_a_foreign_load_gets_phases_from_its_window(tmp_path: Path) -> None:
    """What was due before is warm-up, what was due after is filler, and no request is lost."""
    load = closed_load(sessions_a_slot=6, stampede_s=5.0)
    frame = with_phases(frame_of(load, tmp_path))
    window = window_of(load, tmp_path)
    due_s = ((frame.scheduled_ns - load[0].scheduled_ns) / 1e9).to_numpy(dtype=np.float64)
    inside = (due_s >= window.start_s) & (due_s <= window.end_s)
    assert (frame.phase == Phase.COUNTED).tolist() == inside.tolist()
    assert (frame.phase == Phase.WARMUP).tolist() == (due_s < window.start_s).tolist()


def test_no_request_has_no_window(tmp_path: Path) -> None:
    """A load that sent nothing is not steady anywhere."""
    empty = frame_of([], tmp_path)
    assert find_window(empty) is None
    assert with_phases(empty).empty


@settings(max_examples=50, deadline=None)
@given(loads())
def test_every_load_has_a_window_within_its_span(records: list[RequestRecord]) -> None:
    """Whatever the times are, the bounds are in order, and no more requests lie outside than were counted."""
    with tempfile.TemporaryDirectory() as folder:
        found = window_of(records, Path(folder))
    first, last = min(r.scheduled_ns for r in records), max(r.end_ns for r in records)
    assert 0 <= found.plateau_start_s <= found.stampede_end_s <= found.plateau_end_s
    assert found.start_s <= found.end_s <= (last - first) / 1e9
    assert found.counted_outside <= sum(r.phase is Phase.COUNTED for r in records)
