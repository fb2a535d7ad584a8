"""Divergence, asked again and again in the middle of a load."""

from __future__ import annotations

import numpy as np
import pytest

from harness.load.divergence import LOOKS_IN_A_ROW, Divergence
from harness.load.report import Answered, Waiting
from tests.support.queues import Load, arrivals, closed

S = 10**9


@pytest.mark.parametrize("saturation", [0.9, 1.0, 1.1])
def test_steady_loads_near_saturation_are_let_be(saturation: float) -> None:
    """Of 100 loads of 64 users whose queue drifts widely, fewer than 2 % are stopped."""
    stopped = [closed(64, saturation, 600, seed).stopped_s() for seed in range(100)]
    assert sum(at is not None for at in stopped) < 2


def test_overload_is_stopped_early() -> None:
    """Of loads at one and a half times what the server can take, nearly all are stopped, most in their first half."""
    loads = [arrivals(1.5, 2000, seed) for seed in range(40)]
    stopped_at = [at / load.end_s for load in loads if (at := load.stopped_s()) is not None]
    assert len(stopped_at) >= 37
    assert np.median(stopped_at) < 0.5


def test_a_constant_load_is_never_stopped() -> None:
    """However long it runs."""
    assert Load([float(n) for n in range(400)], [0.5] * 400).stopped_s() is None


def test_a_load_is_not_stopped_before_it_has_run_for_a_while() -> None:
    """The very same growth is seen only once the counted requests have been watched for long enough."""
    growing = Load([n / 20 for n in range(1200)], [0.01 * 1.01**n for n in range(1200)])
    early, late = growing.stopped_s(least_s=1.0), growing.stopped_s(least_s=30.0)
    assert early is not None
    assert late is not None
    assert early < 30 <= late


def test_every_look_needs_new_data() -> None:
    """Asking more often does not make it more sure: without new requests there is no further look."""
    divergence = Divergence(1.0)
    divergence.add([Answered(1, n * S, round(0.01 * S * 1.05**n), "s") for n in range(120)])
    assert not any(divergence.look(200 * S, ()) for _ in range(10 * LOOKS_IN_A_ROW))


def test_the_youngest_requests_do_not_hide_the_growth() -> None:
    """Under overload those that were due lately all still wait: their short waits so far are no quick answers."""
    divergence, stopped = Divergence(1.0), False
    for now_s in range(20, 400):
        came = [Answered(1, n * S, n * S, "s") for n in range(400) if now_s - 1 < 2 * n <= now_s]
        waiting = [Waiting(1, n * S) for n in range(400) if n <= now_s < 2 * n]
        divergence.add(came)
        stopped = stopped or divergence.look(now_s * S, waiting)
    assert stopped


def test_a_request_that_is_stuck_does_not_blind_the_watch() -> None:
    """One that was due first and is never answered does not keep the growth of all others from being seen."""
    divergence, stopped = Divergence(1.0), False
    for now_s in range(1, 400):
        divergence.add([Answered(1, now_s * S, round(0.1 * S * 1.02**now_s), "s")])
        stopped = stopped or divergence.look((now_s + 1) * S, [Waiting(1, 0)])
    assert stopped
