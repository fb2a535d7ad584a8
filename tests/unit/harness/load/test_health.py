"""The health of the load process."""

from __future__ import annotations

import gc

from harness.load.health import HealthMonitor


def test_lag_cpu_and_collections_are_seen_and_the_callback_goes() -> None:
    """Every sleep is a sample, a collection is a pause, and nothing stays registered."""
    before = list(gc.callbacks)
    monitor = HealthMonitor()
    monitor.start()
    monitor.sleep(0.001)
    gc.collect()
    sum(range(200_000))
    health = monitor.report()
    assert gc.callbacks == before
    assert health.gc_pause_ms > 0
    assert health.cpu_fraction > 0
    assert health.lag_max_ms >= health.lag_p99_ms > 0


def test_a_load_that_never_slept_has_no_lag() -> None:
    """No sample is no lag rather than an error."""
    monitor = HealthMonitor()
    monitor.start()
    assert monitor.report().lag_max_ms == 0


def test_how_late_requests_were_sent() -> None:
    """P99 and the worst of all that found their user idle; without any it is unknown, not zero."""
    monitor = HealthMonitor()
    monitor.start()
    for late_ms in (*range(100), 500):
        monitor.sent(late_ms * 1_000_000)
    health = monitor.report()
    assert (health.late_p99_ms, health.late_max_ms) == (99.0, 500.0)
    silent = HealthMonitor()
    silent.start()
    report = silent.report()
    assert (report.late_p99_ms, report.late_max_ms) == (None, None)
