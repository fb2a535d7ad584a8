"""What a search improves, told to Optuna for every record."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.failure import FailureKind
from harness.engine.memory import SeenMemory
from harness.engine.setting import Setting
from harness.metrics import Breakdown, Goodput, Latency, MetricName, Slo
from harness.store import Outcome, TrialRecord
from harness.telemetry import Headroom
from tests.support.study_data import cache_delta, study_file
from tests.support.trials import failed, interrupted, measured, not_sustainable, summary, surely_worse
from tuning.objective import (
    LAUNCHED,
    METRICS,
    Constraint,
    Objective,
    SessionMetric,
    read_metric,
    read_objective,
    sustained_per_s,
)

OFF, ON = Setting(hicache=False), Setting(hicache=True)
ERRORS, HOST = "errors <= 1%", "headroom.host >= 1GiB"
EXPRESSIONS = [
    name if name != "goodput" else "goodput{ttft=500ms}" for name in METRICS
] + ["ttft.p99{tier=host}", "itl.p50{turn=0}", "ttft.max{window=whole}"]  # fmt: skip
ANYTHING = st.sampled_from([math.nan, math.inf, -math.inf]) | st.floats(0, 1e6)


def objective(*texts: str, metric: str = "ttft.p99", pareto: tuple[str, ...] = ()) -> Objective:
    """Make an objective with these constraints and a load limit of 600 s."""
    constraints = tuple(map(Constraint.parse, texts))
    return Objective(constraints, 600.0, read_objective(metric), tuple(map(read_metric, pareto)))


def judged(share: float) -> tuple[Goodput, ...]:
    """Make the goodput of a load under a service level of 500 ms."""
    return (
        Goodput(
            slo=Slo(ttft_s=0.5), judged=100, met=round(100 * share), share=share, share_low=None, share_high=None,
            requests_per_s=1.0, requests_per_s_low=None, requests_per_s_high=None, cut=0, unknown=0,
        ),
    )  # fmt: skip


def with_summary(record: TrialRecord, **changes: Any) -> TrialRecord:
    """Change the summary of a measured record."""
    assert record.summary is not None
    return record.model_copy(update={"summary": record.summary.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("record", "told_s"),
    [
        (measured(ON, 0.8), 0.8),
        (measured(ON, None), 600.0),
        (failed(ON), 600.0),
        (not_sustainable(ON), 600.0),
        (interrupted(ON), 600.0),
        (surely_worse(ON), 1.6),
    ],
)
def test_optuna_is_told_a_finite_number_whatever_happened(record: TrialRecord, told_s: float) -> None:
    """A trial without a P99 counts as the limit of a load, never as zero, NaN, or the P99 that means nothing."""
    assert objective(ERRORS).values(record) == (told_s,)


@st.composite
def records(draw: st.DrawFn) -> TrialRecord:
    """Draw a record of any outcome whose figures may be missing, or no numbers at all."""
    any_s = draw(ANYTHING)
    latency = Latency(count=9, p50_s=any_s, p90_s=any_s, p95_s=any_s, p99_s=draw(ANYTHING), max_s=any_s)
    figures = {
        "steady": draw(st.just(latency) | st.none()),
        "whole_run": draw(st.none() | st.just(latency)),
        "metrics": draw(st.just({}) | st.just(dict.fromkeys(MetricName, Breakdown(overall=latency)))),
        "goodput": draw(st.none() | st.just(()) | st.just(judged(draw(st.floats(0, 1))))),
        "requests_per_s": draw(ANYTHING),
        "output_tokens_per_s": draw(ANYTHING),
        "error_rate": draw(ANYTHING),
    }
    changes = {
        "outcome": draw(st.sampled_from([*Outcome, *[Outcome.MEASURED] * len(Outcome)])),
        "summary": draw(st.just(summary(1.0).model_copy(update=figures)) | st.none()),
        "headroom": draw(st.none() | st.builds(Headroom, *[st.none() | st.integers(0, 2**40)] * 3)),
        "cache": draw(st.none() | st.just(cache_delta(host_tokens=None)) | st.just(cache_delta(host_tokens=9))),
        "seen": draw(st.none() | st.just(SeenMemory()) | st.just(SeenMemory(host_pool_bytes=2**34))),
    }
    return measured(draw(st.sampled_from([OFF, ON]))).model_copy(update=changes)


BOUNDS = tuple(f"{text} <= 1{next(iter(read_metric(text).unit.written))}" for text in EXPRESSIONS)
OBJECTIVES = [
    objective(*BOUNDS, metric=text, pareto=tuple(EXPRESSIONS))
    for text in EXPRESSIONS
    if isinstance(read_metric(text), SessionMetric)
]


@given(records())
def test_nothing_but_finite_numbers_is_ever_told(record: TrialRecord) -> None:
    """Whatever a trial was, and whatever is improved, traded and bounded: values and violations are finite."""
    for asked in OBJECTIVES:
        values, violations = asked.values(record), asked.violations(record)
        assert all(map(math.isfinite, (*values, *violations.values())))
        assert len(values) == len(asked.directions) == 1 + len(EXPRESSIONS)
        if asked.feasible(record):
            assert asked.order(record) == (-values[0] if asked.metric.maximised else values[0])


@pytest.mark.parametrize(
    ("metric", "direction", "worst", "changes", "value"),
    [
        ("tpot.p95", "minimize", 600.0, {}, None),
        ("goodput{ttft=500ms}", "maximize", 0.0, {"goodput": judged(0.75)}, 0.75),
        ("goodput{ttft=400ms}", "maximize", 0.0, {"goodput": judged(0.75)}, None),
        ("throughput", "maximize", 0.0, {}, 100.0),
        ("throughput.requests", "maximize", 0.0, {"requests_per_s": 7.5}, 7.5),
    ],
)
def test_each_metric_knows_which_way_is_better(
    metric: str, direction: str, worst: float, changes: dict[str, Any], value: float | None
) -> None:
    """What is maximised is sorted from the top, and a failure is told as the worst there can be."""
    asked = objective(metric=metric)
    record = with_summary(measured(ON), **changes)
    assert asked.directions == (direction,)
    assert asked.values(failed(ON)) == (worst,)
    assert asked.value(record) == value
    assert asked.values(record) == (worst if value is None else value,)
    assert asked.order(failed(ON)) == math.inf


def test_more_of_a_maximised_metric_comes_first() -> None:
    """And less of a minimised one."""
    quick, slow = measured(ON, 0.5), measured(ON, 0.7)
    busy, idle = (with_summary(measured(ON), requests_per_s=rate) for rate in (9.0, 3.0))
    assert sorted([slow, quick], key=objective().order) == [quick, slow]
    assert sorted([idle, busy], key=objective(metric="throughput.requests").order) == [busy, idle]


def test_a_pareto_search_tells_every_goal() -> None:
    """The objective first; a failed launch is the worst in all that it did not show."""
    asked = objective(pareto=("throughput", "host_memory", "reload_bytes"))
    assert asked.directions == ("minimize", "maximize", "minimize", "minimize")
    seen = measured(ON, 0.5, seen=SeenMemory(host_pool_bytes=2**30), cache=cache_delta(host_tokens=5))
    assert asked.values(seen) == (0.5, 100.0, 2.0**30, 2.0**50)
    assert asked.values(measured(OFF, 0.9, cache=cache_delta(host_tokens=None))) == (0.9, 100.0, 0.0, 0.0)
    assert asked.values(failed(ON)) == (600.0, 0.0, 2.0**50, 2.0**50)


def test_violations_are_told_of_failed_trials_too() -> None:
    """A launch that failed breaks `launched`; bounds that it never came to are left out, not invented."""
    asked = objective(ERRORS, HOST)
    assert asked.violations(failed(ON, FailureKind.HOST_MEMORY_REFUSED)) == {LAUNCHED: 1.0}
    kept = asked.violations(measured(ON))
    assert kept.keys() == {LAUNCHED, ERRORS, HOST}
    assert all(violation <= 0 for violation in kept.values())


@pytest.mark.parametrize(
    ("record", "broken"),
    [
        (measured(ON), []),
        (measured(ON, error_rate=0.02), [ERRORS]),
        (measured(ON, error_rate=0.02, host_bytes=0), [ERRORS, HOST]),
        (measured(ON, host_bytes=None), []),
        (not_sustainable(ON), [LAUNCHED]),
        (failed(ON), [LAUNCHED]),
    ],
)
def test_a_record_is_feasible_when_it_breaks_nothing(record: TrialRecord, broken: list[str]) -> None:
    """The broken constraints are named in the words of the user."""
    assert objective(ERRORS, HOST).broken(record) == broken
    assert objective(ERRORS, HOST).feasible(record) is (not broken)


def test_what_was_stopped_as_surely_worse_ran_but_may_not_win() -> None:
    """Proposals near it are told as slow, not as impossible; its P99 of half a load is no figure to win by."""
    judged = objective(ERRORS)
    assert judged.broken(surely_worse(ON)) == []
    assert judged.violations(surely_worse(ON))[LAUNCHED] < 0
    assert not judged.feasible(surely_worse(ON))


def test_a_setting_without_the_requests_that_are_to_be_quick_cannot_win() -> None:
    """HiCache off serves nothing from the host, which is not the same as serving it at once."""
    asked = objective(metric="ttft.p99{tier=host}")
    assert asked.broken(measured(OFF)) == ["ttft.p99{tier=host} is known"]
    assert asked.broken(failed(OFF)) == [LAUNCHED]


def test_every_service_level_is_asked_of_the_trials_once() -> None:
    """Of objective, goals and constraints alike."""
    level = "goodput{tpot=60ms,ttft=0.5s}"
    asked = objective(f"{level} >= 90%", "goodput{e2e=9s} >= 99%", ERRORS, metric=level)
    assert asked.service_levels == (Slo(ttft_s=0.5, tpot_s=0.06), Slo(e2e_s=9.0))


def test_the_objective_of_a_study_is_that_of_its_file() -> None:
    """A study of before there was a choice minimises the TTFT P99."""
    search = study_file().search
    assert Objective.of(search) == objective(*search.constraints)
    chosen = search.model_copy(update={"objective": "goodput{ttft=500ms}", "pareto": ("host_memory",)})
    wanted = objective(*search.constraints, metric="goodput{ttft=500ms}", pareto=("host_memory",))
    assert Objective.of(chosen) == wanted


def test_of_a_load_that_was_not_sustained_the_rate_is_told() -> None:
    """It is no measure of others, whose latencies are told."""
    assert sustained_per_s(not_sustainable(ON)) == 10.0
    assert [sustained_per_s(record) for record in (measured(ON), failed(ON), interrupted(ON))] == [None] * 3
    assert sustained_per_s(not_sustainable(ON, summary=None)) is None
