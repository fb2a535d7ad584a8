"""Requests to stop: counted, never raised."""

from __future__ import annotations

import signal

import pytest

from harness.stopping import StopFlag

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_the_first_request_stops_and_the_next_hurries() -> None:
    """One request is an orderly stop, any further one a quick one."""
    flag = StopFlag()
    assert (flag.should_stop(), flag.must_hurry()) == (False, False)
    flag.request()
    assert (flag.should_stop(), flag.must_hurry()) == (True, False)
    flag.request()
    flag.request()
    assert (flag.should_stop(), flag.must_hurry()) == (True, True)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_a_request(number: signal.Signals) -> None:
    """Nothing is raised where the signal hits, and afterwards it does what it did before."""
    before = [signal.getsignal(each) for each in SIGNALS]
    flag = StopFlag()
    with flag.on_signals():
        signal.raise_signal(number)
        assert (flag.should_stop(), flag.must_hurry()) == (True, False)
        signal.raise_signal(number)
        assert flag.must_hurry()
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_an_error_in_the_block_gives_the_signals_back() -> None:
    """However the block ends, Ctrl-C works as before."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), StopFlag().on_signals():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_what_nohup_ignores_stays_ignored() -> None:
    """A search that was started to outlive its terminal goes on when that closes."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        flag = StopFlag()
        with flag.on_signals():
            signal.raise_signal(signal.SIGHUP)
            assert not flag.should_stop()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
