"""Goodput: who meets a service level, who misses it, and who cannot be judged."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.load.record import RequestRecord, Status
from harness.metrics import Goodput, Slo, goodput
from scenarios.errors import ConfigError
from tests.support.requests import frame_of, loads, request

QUICK = Slo(ttft_s=1.0)
LIMITS = st.none() | st.floats(0.01, 30)


def judged(records: list[RequestRecord], slo: Slo, folder: Path, *, seconds: float = 10.0) -> Goodput:
    """Judge a load that must have something to judge."""
    found = goodput(frame_of(records, folder), slo, seconds=seconds)
    assert found is not None
    return found


def test_requests_that_meet_every_limit_are_good(tmp_path: Path) -> None:
    """One limit that is missed is enough, and a limit itself is met."""
    records = [
        request("a", ttft_s=1.0, reply_s=1.0),
        request("b", ttft_s=1.5, reply_s=1.0),
        request("c", ttft_s=0.5, reply_s=2.0),
        request("d", ttft_s=0.5, reply_s=0.5),
    ]
    found = judged(records, Slo(ttft_s=1.0, tpot_s=0.1, e2e_s=2.0), tmp_path)
    assert (found.judged, found.met, found.share, found.requests_per_s) == (4, 2, 0.5, 0.2)


def test_failures_miss_and_cut_requests_are_not_judged(tmp_path: Path) -> None:
    """A time-out misses though its first token was quick; what the end of the load cut is shown apart."""
    records = [
        request("a", ttft_s=0.5),
        request("b", ttft_s=0.5, status=Status.TIMEOUT),
        request("c", status=Status.FAILED),
        request("d", status=Status.CUT),
    ]
    found = judged(records, QUICK, tmp_path)
    assert (found.judged, found.met, found.cut, found.unknown) == (3, 1, 1, 0)


def test_a_user_who_left_is_judged_by_the_first_token_alone(tmp_path: Path) -> None:
    """There is no end to hold against a limit; a first token that was late is a miss all the same."""
    left = [request(f"s{n}", ttft_s=ttft_s, status=Status.CANCELLED) for n, ttft_s in enumerate((0.5, 2.0))]
    assert judged(left, QUICK, tmp_path).met == 1
    found = judged(left, Slo(ttft_s=1.0, e2e_s=9.0), tmp_path)
    assert (found.judged, found.met, found.unknown) == (1, 0, 1)


def test_a_reply_of_one_token_keeps_nobody_waiting_for_the_next(tmp_path: Path) -> None:
    """It meets any limit on TPOT; a reply of unknown length cannot be judged by it."""
    records = [request("a", output_tokens=1), request("b", output_tokens=None)]
    found = judged(records, Slo(tpot_s=0.001), tmp_path)
    assert (found.judged, found.met, found.unknown) == (1, 1, 1)


def test_nothing_to_judge_is_no_goodput(tmp_path: Path) -> None:
    """It is None, never zero."""
    assert goodput(frame_of([request(status=Status.CUT)], tmp_path), QUICK, seconds=9) is None
    assert goodput(frame_of([], tmp_path), QUICK, seconds=0) is None


def test_the_interval_goes_by_sessions(tmp_path: Path) -> None:
    """Whole sessions that are good or bad say less than as many single requests, and the interval shows it."""
    together = [request(f"s{n // 10}", ttft_s=0.5 if n < 200 else 2.0) for n in range(400)]
    apart = [request(f"s{n}", ttft_s=0.5 if n < 200 else 2.0) for n in range(400)]
    wide, narrow = (judged(records, QUICK, tmp_path) for records in (together, apart))
    for found in (wide, narrow):
        assert found.share_low is not None
        assert found.share_high is not None
        assert 0 <= found.share_low < found.share == 0.5 < found.share_high <= 1
        assert found.requests_per_s_low == pytest.approx(found.share_low * 40)
    assert wide.share_low is not None
    assert narrow.share_low is not None
    assert 0.5 - wide.share_low > 2 * (0.5 - narrow.share_low)


@settings(max_examples=50, deadline=None)
@given(loads(), LIMITS, LIMITS, LIMITS)
def test_every_request_is_judged_or_shown(
    records: list[RequestRecord], ttft_s: float | None, tpot_s: float | None, e2e_s: float | None
) -> None:
    """Judged, cut and unknown ones are all requests, and a looser level is met by as many or more."""
    slo = Slo(ttft_s=ttft_s or 1.0, tpot_s=tpot_s, e2e_s=e2e_s)
    with tempfile.TemporaryDirectory() as folder:
        frame = frame_of(records, Path(folder))
    found, looser = (goodput(frame, level, seconds=10.0) for level in (slo, Slo(ttft_s=(slo.ttft_s or 1) * 2)))
    if found is not None:
        assert found.judged + found.cut + found.unknown == len(records)
        assert looser is not None
        assert found.met <= looser.met
        assert 0 <= found.met <= found.judged


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft<=500ms", Slo(ttft_s=0.5)),
        (" ttft <= 2s ,tpot<=50ms,  e2e <= .5 s", Slo(ttft_s=2.0, tpot_s=0.05, e2e_s=0.5)),
    ],
)
def test_a_service_level_is_read(text: str, slo: Slo) -> None:
    """Any subset of the three, with units."""
    assert Slo.read(text) == slo


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "`` is no limit; write it as `ttft<=500ms`"),
        ("ttft<=500", "`ttft<=500` is no limit"),
        ("ttft>=500ms", "`ttft>=500ms` is no limit"),
        ("tftt<=500ms", "unknown metric `tftt`; did you mean `ttft`?"),
        ("ttft<=1s,ttft<=2s", "ttft is limited twice"),
        ("ttft<=0s", "`ttft_s`: input should be greater than 0"),
    ],
)
def test_a_service_level_that_cannot_be_read_says_what_to_write(text: str, said: str) -> None:
    """The part at fault is named."""
    with pytest.raises(ConfigError, match="service level") as refusal:
        Slo.read(text)
    assert said in str(refusal.value)
