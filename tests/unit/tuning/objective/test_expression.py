"""The grammar of metrics."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.errors import ConfigError
from tuning.objective import METRICS, TTFT_P99, read_metric, read_objective


@pytest.mark.parametrize(
    ("text", "canonical", "title"),
    [
        ("ttft.p99", "ttft.p99", "TTFT P99"),
        (" ttft.p999 ", "ttft.p999", "TTFT P99.9"),
        ("e2e.max", "e2e.max", "End to end max"),
        ("ttft.p99 { tier = host }", "ttft.p99{tier=host}", "TTFT P99 {tier=host}"),
        ("ttft.p99{turn=0}", "ttft.p99{turn=0}", "TTFT P99 {turn=0}"),
        ("ttft.p99{window=steady}", "ttft.p99", "TTFT P99"),
        ("goodput{tpot=60ms,ttft=0.5s}", "goodput{ttft=500ms,tpot=60ms}", "goodput{ttft=500ms,tpot=60ms}"),
        ("throughput", "throughput.tokens", "throughput"),
        ("throughput.requests", "throughput.requests", "throughput"),
        ("reload_bytes", "reload_bytes", "reloaded"),
    ],
)
def test_a_metric_is_read_and_written_in_one_way(text: str, canonical: str, title: str) -> None:
    """However it is spaced and ordered, it is one metric, and its text is read back as itself."""
    found = read_metric(text)
    assert (found.text, found.title) == (canonical, title)
    assert read_metric(found.text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "`` is no metric; write it as `ttft.p99`, `ttft.p99{tier=host}` or `errors`"),
        ("ttft p99", "`ttft p99` is no metric; write it as"),
        ("ttft.p99 <= 1s", "`ttft.p99 <= 1s` is no metric; write it as"),
        ("ttft.p98", "unknown metric `ttft.p98`; did you mean `ttft.p9"),
        ("througput", "unknown metric `througput`; did you mean `throughput"),
        ("throughput{turn=0}", "`throughput.tokens` has no groups; leave {turn=0} out"),
        ("goodput", "`goodput` needs a service level in braces, as in `goodput{ttft=500ms,tpot=60ms}`"),
    ],
)
def test_what_is_no_metric_is_refused_with_what_to_write(text: str, said: str) -> None:
    """The nearest name is given."""
    with pytest.raises(ConfigError) as refusal:
        read_metric(text)
    assert str(refusal.value).startswith(said)


@pytest.mark.parametrize("text", ["headroom.host", "errors", "host_memory", "reload_bytes", "cached_ratio"])
def test_what_no_request_tells_is_no_objective(text: str) -> None:
    """A winner by it could not be proven; it may be bounded or traded."""
    assert read_metric(text).text == text
    with pytest.raises(
        ConfigError, match=f"`{text}` is no objective, .* search it as a second goal with --pareto {text}"
    ):
        read_objective(text)


def test_the_default_is_the_ttft_p99_of_the_steady_window() -> None:
    """As it always was."""
    assert read_objective("ttft.p99") == TTFT_P99


@given(
    st.text(max_size=30)
    | st.sampled_from(METRICS).flatmap(lambda name: st.text(max_size=12).map(lambda more: name + more))
)
def test_any_text_is_a_metric_or_a_clear_refusal(text: str) -> None:
    """Nothing that a user can type ends in another error, and what is read is read again from its text."""
    with suppress(ConfigError):
        assert read_metric(read_metric(text).text) == read_metric(text)


@given(st.floats(1e-12, 1e6), st.sampled_from(["ms", "s"]))
def test_a_service_level_is_kept_to_the_nanosecond(limit: float, unit: str) -> None:
    """What study.json holds is the level that was asked for."""
    found = read_metric(f"goodput{{e2e={limit:.12f}{unit}}}")
    assert read_metric(found.text) == found
