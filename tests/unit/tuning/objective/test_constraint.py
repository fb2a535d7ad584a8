"""Bounds on metrics, as a user writes them."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.setting import Setting
from harness.metrics import Breakdown, Latency, MetricName
from harness.telemetry import Headroom
from scenarios.errors import ConfigError
from tests.support.trials import GIB, failed, measured, summary
from tuning.objective import Constraint

ON = Setting(hicache=True)
ERRORS, HOST, P50 = "errors <= 1%", "headroom.host >= 1GiB", "ttft.p50 <= 200 ms"


def latency(p99_s: float, **others: float) -> Latency:
    """Make a latency whose other quantiles are a fifth of its P99 unless they are given."""
    names = ("p50_s", "p90_s", "p95_s", "p999_s", "max_s")
    return Latency(count=600, p99_s=p99_s, **(dict.fromkeys(names, p99_s / 5) | others))


DETAILED = summary(1.0).model_copy(
    update={
        "whole_run": latency(4.0),
        "steady": latency(1.8, p95_s=1.5, p999_s=1.9),
        "metrics": {
            MetricName.TTFT: Breakdown(
                overall=latency(1.8),
                by_turn={"10+": latency(1.0)},
                by_tier={"host": latency(0.7)},
                by_prompt={"4k-8k": latency(0.8)},
            ),
            MetricName.ITL: Breakdown(overall=latency(0.09)),
            MetricName.E2E: Breakdown(overall=latency(9.0, max_s=10.0)),
        },
    }
)
"""The summary of a load with figures of several groups, and no TPOT."""


@pytest.mark.parametrize(
    ("text", "metric", "at_most", "limit"),
    [
        ("errors <= 1%", "errors", True, 0.01),
        ("errors<=0", "errors", True, 0.0),
        ("  headroom.host   >=  2  GiB ", "headroom.host", False, 2 * GIB),
        ("headroom.device >= 1.5GB", "headroom.device", False, 1.5e9),
        ("headroom.host >= 0", "headroom.host", False, 0.0),
        ("headroom.device.double >= 1GiB", "headroom.device.double", False, GIB),
        ("ttft.p99 <= 500ms", "ttft.p99", True, 0.5),
        ("ttft.p90 <= .5s", "ttft.p90", True, 0.5),
        ("ttft.p50 <= 5e-1 s", "ttft.p50", True, 0.5),
        ("throughput >= 900 tokens/s", "throughput.tokens", False, 900.0),
        ("throughput.requests>=2.5requests/s", "throughput.requests", False, 2.5),
        ("goodput{ttft=500ms, tpot<=60ms} >= 99%", "goodput{ttft=500ms,tpot=60ms}", False, 0.99),
        ("reload_bytes <= 40GB", "reload_bytes", True, 40e9),
        ("host_memory <= 32GiB", "host_memory", True, 32 * GIB),
        ("cached_ratio.host >= 20%", "cached_ratio.host", False, 0.2),
    ],
)
def test_a_constraint_is_a_metric_a_bound_and_a_unit(text: str, metric: str, at_most: bool, limit: float) -> None:
    """Spaces do not matter, and limits are kept in seconds, bytes and shares."""
    found = Constraint.parse(text)
    assert (found.metric.text, found.at_most, found.text) == (metric, at_most, text.strip())
    assert found.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("error <= 1%", "constraint `error <= 1%`: unknown metric `error`; did you mean `errors`?"),
        ("Errors <= 1%", "constraint `Errors <= 1%`: unknown metric `Errors`; did you mean `errors`?"),
        ("ttft <= 1s", "constraint `ttft <= 1s`: unknown metric `ttft`; did you mean `ttft.p"),
        (
            "headroom.host >= 2Gib",
            "constraint `headroom.host >= 2Gib`: unknown unit `Gib` for headroom.host; did you mean",
        ),
        (
            "headroom.host >= 2s",
            "constraint `headroom.host >= 2s`: unknown unit `s` for headroom.host; valid: GB, GiB,",
        ),
        ("headroom.host >= 4", "constraint `headroom.host >= 4`: the unit of headroom.host is missing; valid: GB, GiB"),
        ("errors <= 1", "constraint `errors <= 1`: the unit of errors is missing; valid: %"),
        (
            "throughput.requests >= 2/s",
            "constraint `throughput.requests >= 2/s`: unknown unit `/s` for throughput.requests; valid: req",
        ),
        ("goodput >= 90%", "constraint `goodput >= 90%`: `goodput` needs a service level in braces, as in `goodput{"),
        ("errors < 1%", "constraint `errors < 1%`: write METRIC <= LIMIT or METRIC >= LIMIT, as in `errors <= 1%`"),
        ("errors", "constraint `errors`: write METRIC <= LIMIT"),
        ("ttft.p99 <= 1.2.3s", "constraint `ttft.p99 <= 1.2.3s`: write METRIC <= LIMIT"),
        ("ttft.p99 <= .", "constraint `ttft.p99 <= .`: write METRIC <= LIMIT"),
        ("ttft.p99 <= 1e999s", "constraint `ttft.p99 <= 1e999s`: write METRIC <= LIMIT"),
        ("", "constraint ``: write METRIC <= LIMIT"),
    ],
)
def test_a_constraint_that_cannot_be_read_names_what_to_write(text: str, said: str) -> None:
    """The nearest metric or unit is named; a missing unit is never guessed."""
    with pytest.raises(ConfigError) as refusal:
        Constraint.parse(text)
    assert str(refusal.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ttft.p999 <= 1s", 1.9),
        ("ttft.p95 <= 1s", 1.5),
        ("itl.p99 <= 80ms", 0.09),
        ("e2e.max <= 9s", 10.0),
        ("ttft.p99{tier=host} <= 1s", 0.7),
        ("ttft.p50 { turn = 10+ } <= 1s", 0.2),
        ("ttft.p99{prompt=4k-8k} <= 1s", 0.8),
        ("ttft.p99{tier=storage} <= 1s", None),
        ("tpot.p50 <= 1s", None),
        ("tpot.p50{tier=host} <= 1s", None),
        ("ttft.p99{window=whole} <= 1s", 4.0),
        ("ttft.p99{window=steady} <= 1s", 1.8),
    ],
)
def test_latencies_of_every_metric_and_group_may_be_bounded(text: str, value: float | None) -> None:
    """The bound is held against the group's own figure; what the trial did not have is no violation."""
    found, record = Constraint.parse(text), measured(ON, summary=DETAILED)
    violation = found.violation(record)
    assert violation == (None if value is None else pytest.approx((value - found.limit) / found.limit))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft.p99{tier=hots} <= 1s", "unknown tier `hots`; did you mean `host`?"),
        ("ttft.p99{teir=host} <= 1s", "unknown group `teir`; did you mean `tier`?"),
        ("ttft.p99{turn=11} <= 1s", "unknown turn `11`; did you mean"),
        ("ttft.p99{prompt=4k-9k} <= 1s", "unknown prompt `4k-9k`; did you mean"),
        ("tpot.p99{window=whole} <= 1s", "`tpot.p99` is kept of the steady window alone; leave {window=whole} out"),
        ("ttft.p99{tier=host,turn=0} <= 1s", "`ttft.p99` takes one group of requests; leave the others out of the"),
        ("ttft.p99{tier=host,tier=none} <= 1s", "tier is given twice; leave one out"),
        ("goodput{ttft=0.5} >= 9%", "service level `ttft<=0.5`: `ttft<=0.5` is no limit; write it as `ttft<=500ms`"),
        ("goodput{tttf=1s} >= 9%", "service level `tttf<=1s`: unknown metric `tttf`; did you mean `ttft`?"),
        ("errors{tier=host} <= 1%", "`errors` has no groups; leave {tier=host} out"),
        ("ttft.p99{tier} <= 1s", "write METRIC <= LIMIT"),
    ],
)
def test_a_group_that_does_not_exist_is_refused(text: str, said: str) -> None:
    """A misspelt group would bound nothing."""
    with pytest.raises(ConfigError) as refusal:
        Constraint.parse(text)
    assert str(refusal.value).startswith(f"constraint `{text}`: {said}")


@given(
    st.text(max_size=30)
    | st.from_regex(
        r"(errors|ttft\.p99|goodput|throughput)(\{(tier|turn|ttft|tpot)=[a-z0-9.+]{1,5}\})?"
        r" ?(<=|>=) ?[0-9.eE+-]{0,8} ?[a-zA-Z%/]{0,3}",
        fullmatch=True,
    )
)
def test_any_text_is_a_constraint_or_a_clear_refusal(text: str) -> None:
    """Nothing that a user can type ends in another error, or in a limit that is no number."""
    with suppress(ConfigError):
        assert math.isfinite(Constraint.parse(text).limit)


def test_a_violation_is_a_share_of_the_limit() -> None:
    """4 % errors are 3 limits beyond 1 %; half the headroom is half a limit short; at the limit is kept."""
    assert Constraint.parse(ERRORS).violation(measured(ON, error_rate=0.04)) == pytest.approx(3)
    assert Constraint.parse(HOST).violation(measured(ON, host_bytes=GIB // 2)) == pytest.approx(0.5)
    assert Constraint.parse(HOST).violation(measured(ON, host_bytes=GIB)) == 0
    assert Constraint.parse(P50).violation(measured(ON, 0.4)) == pytest.approx(-0.5)


def test_a_limit_of_zero_is_measured_in_the_metric_itself() -> None:
    """`errors <= 0` has no share to give, and must not divide by it."""
    none = Constraint.parse("errors <= 0")
    assert none.violation(measured(ON)) == 0
    assert none.violation(measured(ON, error_rate=0.25)) == 0.25


def test_a_limit_near_zero_gives_no_infinity() -> None:
    """Samplers add violations up."""
    violation = Constraint.parse("errors <= 1e-310%").violation(measured(ON, error_rate=0.5))
    assert violation is not None
    assert 1e6 < violation < math.inf


@pytest.mark.parametrize("text", [ERRORS, HOST, P50, "goodput{ttft=1s} >= 90%", "throughput >= 1tokens/s"])
def test_what_a_trial_never_came_to_is_no_violation(text: str) -> None:
    """A launch that failed has no load."""
    assert Constraint.parse(text).violation(failed(ON)) is None


def test_each_headroom_has_a_constraint_of_its_own() -> None:
    """Device, host, cgroup and both guesses for twice the concurrency; a guess that nobody made does not bind."""
    record = measured(ON, headroom=Headroom(5 * GIB, 4 * GIB, 3 * GIB, None, None, 2 * GIB, -GIB))
    limits = {"device": 5, "host": 4, "cgroup": 3, "device.double": 2, "host.double": -1}
    for name, gib in limits.items():
        for limit, broken in ((gib, False), (gib + 1, True)):
            text = f"headroom.{name} >= {limit}GiB"
            assert ((Constraint.parse(text).violation(record) or 0) > 0) is broken, text
    without = measured(ON, headroom=Headroom(5, 4, 3))
    assert Constraint.parse("headroom.host.double >= 1GiB").violation(without) is None
