"""What is answered in the window of a load, whoever it belongs to."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy import stats

from harness.load.record import RequestRecord, Status
from harness.statistics import Floats, Ratio, compare, interval_of
from harness.summary import span_s
from harness.throughput import answers_by_session
from scenarios.plan import Phase
from tests.support.requests import frame_of, loads, request

SLOTS, TURNS = 16, 5


def test_all_answers_in_the_window_count(tmp_path: Path) -> None:
    """The window is 10 s to 20 s; what ended before it or after it, or was not answered, does not count."""
    records = [
        request("early", phase=Phase.WARMUP, due_s=0, reply_s=3),
        request("warm", 0, phase=Phase.WARMUP, due_s=4, reply_s=3),
        request("warm", 1, phase=Phase.WARMUP, due_s=9, reply_s=3),
        request("a", 0, due_s=10, reply_s=4),
        request("a", 1, due_s=15, reply_s=4, output_tokens=None),
        request("lost", due_s=12, reply_s=1, status=Status.FAILED),
        request("fill", phase=Phase.FILLER, due_s=16, reply_s=1, output_tokens=7, status=Status.CANCELLED),
        request("late", phase=Phase.FILLER, due_s=18, reply_s=9),
    ]
    found = answers_by_session(frame_of(records, tmp_path))
    assert found["requests"].to_dict() == {"a": 2, "fill": 1, "late": 0, "lost": 0, "warm": 1}
    assert found["output_tokens"].to_dict() == {"a": 11, "fill": 7, "late": 0, "lost": 0, "warm": 11}
    lived_s = {"a": 10, "fill": 2, "late": 2, "lost": 2, "warm": 3}
    assert (found["seconds"] / found["seconds"]["a"] * 10).to_dict() == pytest.approx(lived_s)
    assert found["seconds"].sum() == pytest.approx(10)


@pytest.mark.parametrize(
    "records", [[], [request(phase=Phase.WARMUP)], [request(ttft_s=0, reply_s=0)]], ids=["none", "uncounted", "instant"]
)
def test_without_a_window_nothing_is_answered_in_it(records: list[RequestRecord], tmp_path: Path) -> None:
    """No row, and no division by a length of zero."""
    assert answers_by_session(frame_of(records, tmp_path)).empty


@settings(max_examples=40, deadline=None)
@given(loads(most=25))
def test_the_parts_of_the_sessions_add_up_to_the_window(records: list[RequestRecord]) -> None:
    """Every session that lived in it has a part of its length, and nobody is answered more than all."""
    with tempfile.TemporaryDirectory() as folder:
        load = frame_of(records, Path(folder))
    found, window_s = answers_by_session(load), span_s(load[load["phase"] == Phase.COUNTED])
    assert (found["seconds"] > 0).all()
    assert found["seconds"].sum() == pytest.approx(window_s)
    assert found["requests"].sum() <= len(load)


def play(base_s: Floats, noise: np.random.Generator) -> pd.DataFrame:
    """Play sessions one after the other in each of SLOTS, the first and last SLOTS of them not counted."""
    took_s = base_s * noise.lognormal(0, 0.3, base_s.shape)
    free_s = np.linspace(0, 2, SLOTS)
    rows = []
    for number, turns_s in enumerate(took_s):
        slot = int(np.argmin(free_s))
        ends_s = free_s[slot] + np.cumsum(turns_s)
        phase = Phase.WARMUP if number < SLOTS else Phase.COUNTED if number < len(took_s) - 2 * SLOTS else Phase.FILLER
        begins_s = [free_s[slot], *ends_s[:-1]]
        rows += [(f"s{number}", phase, round(1e9 * a), round(1e9 * b)) for a, b in zip(begins_s, ends_s, strict=True)]
        free_s[slot] = ends_s[-1]
    frame = pd.DataFrame(rows, columns=["session_id", "phase", "scheduled_ns", "end_ns"])
    return frame.assign(status=Status.OK, output_tokens=10)


def rate_of(answers: pd.DataFrame) -> Ratio:
    """Return the requests a second of these sessions."""
    return Ratio(answers["requests"].to_numpy(), answers["seconds"].to_numpy(), answers.index.to_numpy())


def test_the_rate_of_a_simulated_closed_load_is_what_it_is() -> None:
    """Over 60 loads: no bias, the interval holds the truth and that of equal settings holds zero, as often as it says.

    The counted requests alone over their span are too few in every load, by a fifth on average.
    """
    rng, truth = np.random.default_rng(3), np.random.default_rng(4)

    def sessions_s(generator: np.random.Generator, count: int) -> Floats:
        return generator.lognormal(0, 0.3, (count, 1)) * generator.lognormal(0, 0.4, (count, TURNS))

    true_per_s = SLOTS * TURNS / (sessions_s(truth, 20_000).sum(axis=1).mean() * np.exp(0.3**2 / 2))
    trials, held, equal, rates, alone = 60, 0, 0, [], []
    for _ in range(trials):
        base_s = sessions_s(rng, 100 + 3 * SLOTS)
        loads_played = [play(base_s, rng) for _ in range(2)]
        one, other = (answers_by_session(load) for load in loads_played)
        rate = rate_of(one)
        both = one.index.intersection(other.index)
        change, interval = compare(rate_of(one.loc[both]), rate_of(other.loc[both])).interval, interval_of(rate)
        assert change is not None
        assert interval is not None
        held += true_per_s in interval
        equal += 0.0 in change
        rates.append(rate.value())
        counted = loads_played[0][loads_played[0]["phase"] == Phase.COUNTED]
        alone.append(len(counted) / span_s(counted))
    least = stats.binom.ppf(0.001, trials, 0.95)
    assert held >= least
    assert equal >= least
    assert np.mean(rates) == pytest.approx(true_per_s, rel=0.02)
    assert np.max(alone) < 0.95 * true_per_s
    assert np.mean(alone) == pytest.approx(0.8 * true_per_s, rel=0.05)
