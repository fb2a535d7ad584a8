"""What one load amounts to: windows, turns, tiers, what was not answered, and whether it was sustained."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.load.record import RequestRecord, Status, read_records, write_records
from harness.metrics import Slo
from harness.statistics import CONFIDENT_P99_REQUESTS, Floats
from harness.summary import Summary, diverges, summarise
from scenarios.plan import Phase
from tests.support.requests import frame_of, loads

S = 10**9
STEADY_LOADS = 500

Frame = Callable[[Sequence[RequestRecord]], pd.DataFrame]


@pytest.fixture
def frame(tmp_path: Path) -> Frame:
    """Make a frame as the harness reads it from disk, nullable integers included."""

    def make(records: Sequence[RequestRecord]) -> pd.DataFrame:
        write_records(records, tmp_path / "requests.parquet")
        return read_records(tmp_path / "requests.parquet")

    return make


def answered(ttft_s: float = 1.0, *, session: str = "s0", turn: int = 0, at_s: float = 0.0) -> RequestRecord:
    """Make a counted request that was answered with 11 tokens, the last one a second after the first."""
    at_ns = round(at_s * S)
    first_ns = at_ns + round(ttft_s * S)
    return RequestRecord(
        session, turn, Phase.COUNTED, Status.OK, at_ns, at_ns, first_ns + S, first_ns, first_ns + S, output_tokens=11
    )


def unanswered(status: Status, phase: Phase = Phase.COUNTED) -> RequestRecord:
    """Make a request without a token that ended after 5 s."""
    return RequestRecord("s9", 1, phase, status, 0, 0, 5 * S)


def load_of(ttft_s: Floats | Sequence[float], *, turn: int = 1) -> pd.DataFrame:
    """Make the columns of a load that `diverges` reads, one request a second."""
    at_ns = np.arange(len(ttft_s), dtype=np.int64) * S
    first_ns = at_ns + (np.asarray(ttft_s) * S).astype(np.int64)
    return pd.DataFrame({"turn": turn, "scheduled_ns": at_ns, "first_token_ns": first_ns})


def closed_queue(rng: np.random.Generator, *, requests: int, slots: int, think_s: float, work_s: float) -> Floats:
    """Simulate a steady load: `slots` users think and then wait for one server; returns their TTFT in seconds."""
    total = requests + 4 * slots
    thinks, works = rng.exponential(think_s, total + slots), rng.gamma(4, work_s / 4, total)
    arrivals, free, found = sorted(thinks[:slots]), 0.0, []
    for think, work in zip(thinks[slots:], works, strict=True):
        arrived = arrivals[0]
        free = max(arrived, free) + work
        found.append(free - arrived)
        heapq.heapreplace(arrivals, free + think)
    return np.array(found[-requests:])


def ar1(rng: np.random.Generator, *, requests: int, carry: float, sigma: float) -> Floats:
    """Simulate steady lognormal TTFT of which each request carries a share of the one before."""
    level, found = rng.normal(), []
    for noise in rng.normal(0, np.sqrt(1 - carry**2), requests):
        level = carry * level + noise
        found.append(np.exp(sigma * level))
    return np.array(found)


def test_the_headline_is_of_counted_requests_from_their_scheduled_time(frame: Frame) -> None:
    """Warm-up and filler requests count for the whole run only, and TTFT begins when a request was due."""
    late = replace(answered(2.0, at_s=1), sent_ns=2 * S)
    warm_up = replace(answered(9.0), phase=Phase.WARMUP)
    filler = replace(answered(8.0), phase=Phase.FILLER)
    found = summarise(frame([late, warm_up, filler]), not_played=0)
    assert found.steady is not None
    assert (found.steady.count, found.steady.max_s) == (1, 2.0)
    assert found.whole_run is not None
    assert (found.whole_run.count, found.whole_run.max_s) == (3, 9.0)


def test_each_request_belongs_to_the_slowest_tier_that_served_it(frame: Frame) -> None:
    """Storage over host over device; no cached token is `none`, and what the engine did not say is `unknown`."""

    def hit(ttft_s: float, host: int | None, storage: int | None) -> RequestRecord:
        return replace(
            answered(ttft_s),
            cached_tokens=50,
            device_cached_tokens=20,
            host_cached_tokens=host,
            storage_cached_tokens=storage,
        )

    records = [
        hit(1, host=20, storage=10),
        hit(2, host=30, storage=0),
        hit(3, host=None, storage=None),
        replace(answered(4), cached_tokens=0),
        replace(answered(5), cached_tokens=7),
        answered(6),
    ]
    tiers = summarise(frame(records), not_played=0).by_tier
    assert {name: (tier.count, tier.max_s) for name, tier in tiers.items()} == {
        "storage": (1, 1.0),
        "host": (1, 2.0),
        "device": (1, 3.0),
        "none": (1, 4.0),
        "unknown": (2, 6.0),
    }


def test_what_was_not_answered_is_counted_by_its_kind(frame: Frame) -> None:
    """Failures and time-outs are errors, cut and unplayed requests are not, and cut fillers are no one's loss."""
    records = [
        *(answered(at_s=second) for second in range(6)),
        unanswered(Status.FAILED),
        *(unanswered(Status.TIMEOUT) for _ in range(3)),
        *(unanswered(Status.CUT) for _ in range(2)),
        unanswered(Status.CUT, Phase.FILLER),
        unanswered(Status.FAILED, Phase.WARMUP),
    ]
    found = summarise(frame(records), not_played=4)
    assert (found.counted, found.ok, found.failed, found.timed_out, found.cut, found.not_played) == (16, 6, 1, 3, 2, 4)
    assert found.error_rate == pytest.approx(4 / 10)


def test_a_user_who_left_has_a_first_token_and_no_end(frame: Frame) -> None:
    """It counts for TTFT and as answered, is no error, and says nothing of TPOT or the end."""
    left = replace(answered(3.0), status=Status.CANCELLED)
    found = summarise(frame([answered(1.0), left]), not_played=0)
    assert found.steady is not None
    assert (found.steady.count, found.steady.max_s) == (2, 3.0)
    assert (found.ok, found.cancelled, found.error_rate) == (1, 1, 0.0)
    assert found.time_per_output_token is not None
    assert found.time_per_output_token.count == 1
    assert summarise(frame([left, unanswered(Status.FAILED)]), not_played=0).error_rate == 0.5


@settings(max_examples=25, deadline=None)
@given(loads(), st.integers(0, 9))
def test_nothing_is_dropped_silently(records: list[RequestRecord], not_played: int) -> None:
    """Every counted request is exactly one of answered, left, failed, timed out, cut or not played."""
    with tempfile.TemporaryDirectory() as folder:
        found = summarise(frame_of(records, Path(folder)), not_played=not_played)
    ends = (found.ok, found.cancelled, found.failed, found.timed_out, found.cut, found.not_played)
    assert found.counted == sum(ends) == sum(r.phase is Phase.COUNTED for r in records) + not_played
    assert (found.steady.count if found.steady else 0) == found.ok + found.cancelled
    assert Summary.model_validate_json(found.model_dump_json()) == found


def test_goodput_is_of_counted_requests(frame: Frame) -> None:
    """With service levels the summary says how many met each; without one it says nothing."""
    records = [answered(1.0), answered(3.0, session="s1"), replace(answered(1.0), phase=Phase.WARMUP)]
    levels = (Slo(ttft_s=2.0), Slo(ttft_s=9.0), Slo(tpot_s=9.0, ttft_s=0.5))
    found = summarise(frame(records), not_played=0, slos=levels).goodput
    assert found is not None
    assert [(each.slo, each.judged, each.met) for each in found] == list(zip(levels, (2, 2, 2), (1, 2, 0), strict=True))
    assert summarise(frame(records), not_played=0).goodput is None


def test_rates_are_over_the_span_of_the_counted_requests(frame: Frame) -> None:
    """Two requests of 11 tokens over 4 s, from the first scheduled to the last ended."""
    found = summarise(frame([answered(1, at_s=10), answered(1, at_s=12)]), not_played=0)
    assert found.steady_seconds == pytest.approx(4)
    assert found.requests_per_s == pytest.approx(2 / 4)
    assert found.output_tokens_per_s == pytest.approx(22 / 4)


def _all_failed() -> list[RequestRecord]:
    return [unanswered(Status.FAILED) for _ in range(3)]


@pytest.mark.parametrize(
    ("records", "error_rate"),
    [
        pytest.param([], 0.0, id="no request at all"),
        pytest.param([replace(answered(), phase=Phase.WARMUP)], 0.0, id="no counted request"),
        pytest.param(_all_failed(), 1.0, id="all failed"),
        pytest.param([unanswered(Status.CUT)], 0.0, id="all cut"),
    ],
)
def test_a_load_without_answers_has_no_latency(frame: Frame, records: list[RequestRecord], error_rate: float) -> None:
    """Nothing answered is None, never zero, and the error rate stays a number."""
    found = summarise(frame(records), not_played=0)
    assert found.steady is None
    assert found.first_turns is None
    assert found.time_per_output_token is None
    assert (found.by_tier, found.by_turn, found.requests_per_s, found.diverges) == ({}, {}, 0.0, False)
    assert found.error_rate == error_rate


def test_turns_are_told_apart(frame: Frame) -> None:
    """Each turn index has its own figures, and first turns are turn 0."""
    records = [answered(turn + 1.0, session=f"s{n}", turn=turn) for n in range(3) for turn in range(2)]
    found = summarise(frame(records), not_played=0)
    assert {turn: (each.count, each.p50_s) for turn, each in found.by_turn.items()} == {0: (3, 1.0), 1: (3, 2.0)}
    assert found.first_turns == found.by_turn[0]


def test_time_per_output_token_is_of_the_tokens_after_the_first(frame: Frame) -> None:
    """One second for the ten tokens after the first; replies of one token or of unknown length say nothing."""
    silent = [replace(answered(), output_tokens=1), replace(answered(), output_tokens=None)]
    found = summarise(frame([answered(), *silent]), not_played=0).time_per_output_token
    assert found is not None
    assert found.count == 1
    assert found.p50_s == pytest.approx(0.1)


@pytest.mark.parametrize(("count", "confident"), [(CONFIDENT_P99_REQUESTS - 1, False), (CONFIDENT_P99_REQUESTS, True)])
def test_a_p99_of_few_requests_is_flagged(frame: Frame, count: int, confident: bool) -> None:
    """A P99 is taken at its word from 500 requests on (case 15: a low count is marked)."""
    records = [answered(1 + n / count, session=f"s{n % 50}", at_s=n) for n in range(count)]
    steady = summarise(frame(records), not_played=0).steady
    assert steady is not None
    assert steady.confident is confident
    assert steady.p99_low_s is not None
    assert steady.p99_high_s is not None
    assert steady.p99_low_s <= steady.p99_s <= steady.p99_high_s <= steady.max_s


def test_a_single_session_has_figures_without_an_interval(frame: Frame) -> None:
    """The bounds are None when they cannot be known."""
    steady = summarise(frame([answered(1), answered(2)]), not_played=0).steady
    assert steady is not None
    assert (steady.p99_low_s, steady.p99_high_s) == (None, None)


def test_a_summary_survives_its_file(frame: Frame) -> None:
    """JSON and back is the same summary, turn numbers and all."""
    records = [answered(turn + 1.0, session=f"s{n}", turn=turn) for n in range(3) for turn in range(2)]
    found = summarise(frame(records), not_played=1)
    assert Summary.model_validate_json(found.model_dump_json()) == found


def test_a_queue_that_grows_evenly_diverges() -> None:
    """An overloaded open queue grows in proportion to time: the least steep divergence that there is."""
    noise = np.random.default_rng(1).lognormal(0, 0.2, 240)
    assert diverges(load_of(np.linspace(0.05, 12, 240) * noise))


def test_an_easy_beginning_alone_does_not_diverge() -> None:
    """Empty caches make the first third quick; what counts is that the growth goes on."""
    rng = np.random.default_rng(2)
    easy, hard = 0.1 * rng.lognormal(0, 0.3, 80), 2.0 * rng.lognormal(0, 0.3, 160)
    assert not diverges(load_of(np.concatenate([easy, hard])))


def test_a_late_jump_alone_does_not_diverge() -> None:
    """One step up is a change of regime, not a growth."""
    rng = np.random.default_rng(3)
    assert not diverges(load_of(np.concatenate([rng.lognormal(0, 0.3, 160), 4 * rng.lognormal(0, 0.3, 80)])))


def test_growth_by_luck_is_not_significant() -> None:
    """Medians that grow between parts which overlap wholly prove nothing."""
    low, middle, high = [0.1] * 10 + [1.0] * 11, [0.1] * 10 + [1.6] * 11, [0.1] * 10 + [2.5] * 11
    assert not diverges(load_of([*low, *middle, *high]))


def test_slow_first_turns_do_not_hide_the_growth_of_the_later_ones() -> None:
    """Cold first turns lie in the first third of a load and are the same under every setting."""
    growing = load_of(np.linspace(0.05, 12, 240))
    cold = load_of([5.0] * 60, turn=0)
    assert diverges(pd.concat([cold, growing], ignore_index=True))


def test_sessions_of_one_turn_are_judged_by_their_first() -> None:
    """Where there are no later turns the first ones are all there is."""
    assert diverges(load_of(np.linspace(0.05, 12, 240), turn=0))


def test_the_order_is_that_of_the_scheduled_times() -> None:
    """Records come in the order in which they ended; growth is over the times at which they were due."""
    growing = load_of(np.linspace(0.05, 12, 240))
    assert diverges(growing.sample(frac=1, random_state=1))


def test_a_short_load_is_not_judged() -> None:
    """A few dozen requests grow by chance."""
    assert not diverges(load_of(np.linspace(0.05, 12, 57)))


@pytest.mark.parametrize(
    ("simulated", "alarms"),
    [
        pytest.param(lambda rng: ar1(rng, requests=240, carry=0.75, sigma=0.5), 0.01, id="as correlated as recorded"),
        pytest.param(lambda rng: ar1(rng, requests=240, carry=0.9, sigma=0.5), 0.01, id="more correlated"),
        pytest.param(
            lambda rng: closed_queue(rng, requests=200, slots=12, think_s=0.7, work_s=0.7 / 12),
            0.01,
            id="12 users at saturation",
        ),
        pytest.param(
            lambda rng: closed_queue(rng, requests=448, slots=64, think_s=4.6, work_s=4.6 / 64),
            0.025,
            id="64 users at saturation: the hardest case",
        ),
    ],
)
def test_steady_loads_are_rarely_called_diverging(
    simulated: Callable[[np.random.Generator], Floats], alarms: float
) -> None:
    """Of 500 steady loads few raise the alarm, though neighbouring requests share their luck."""
    seeds = range(STEADY_LOADS)
    raised = sum(diverges(load_of(simulated(np.random.default_rng(seed)))) for seed in seeds)
    assert raised < alarms * STEADY_LOADS
