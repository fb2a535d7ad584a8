"""Faults of dashboards and rules are named, one by one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dashboards.files import JSON_FOLDER
from dashboards.known import known_metrics
from dashboards.lint import lint, lint_for_readers, lint_rules
from tests.support.cases import case_folder, expected


@pytest.fixture
def board() -> dict[str, Any]:
    """Read a dashboard without a fault."""
    found: dict[str, Any] = json.loads((JSON_FOLDER / "hicache-tune-engine.json").read_text())
    return copy.deepcopy(found)


def panel(board: dict[str, Any]) -> dict[str, Any]:
    """Return the first panel with queries, which is number 2."""
    found: dict[str, Any] = next(each for each in board["panels"] if each.get("targets"))
    assert found["id"] == 2
    return found


def test_a_dashboard_that_was_exported_for_sharing_is_refused() -> None:
    """Case 63: provisioned, it would say `datasource not found` in every panel."""
    board = json.loads((case_folder("63") / "dashboard.json").read_text())
    assert lint(board) == expected("63")["lint"]


def test_a_fixed_datasource_is_a_fault(board: dict[str, Any]) -> None:
    """The uid of one Grafana exists in no other."""
    panel(board)["datasource"]["uid"] = "P1809F7CD0C75ACF3"
    assert lint(board) == ["panel 2 has the fixed datasource uid P1809F7CD0C75ACF3"]
    panel(board)["datasource"] = "Prometheus"
    assert lint(board) == ["panel 2 has the fixed datasource uid Prometheus"]


def test_a_fixed_datasource_of_a_variable_is_a_fault(board: dict[str, Any]) -> None:
    """A choice that asks another Prometheus than the panels is a fault too."""
    board["templating"]["list"][1]["datasource"]["uid"] = "abc"
    assert lint(board) == ["instance has the fixed datasource uid abc"]


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        (
            "sglang:num_queue_req",
            "panel 2: unknown metric sglang:num_queue_req; did you mean sglang:num_queue_reqs?",
        ),
        ("sum(rate(sglang:cache_hit_rate[1m]))", "panel 2: unknown metric sglang:cache_hit_rate"),
        ('{__name__="hicache_tune_nothing"}', "panel 2: unknown metric hicache_tune_nothing"),
        ("sglang:num_running_reqs_bucket", "panel 2: unknown metric sglang:num_running_reqs_bucket"),
        ("sum(sglang:num_running_reqs", "panel 2: no PromQL: "),
        ('sglang:num_running_reqs{instance="$instanc"}', "panel 2 uses $instanc, which is no variable"),
    ],
)
def test_a_query_that_shows_nothing_is_a_fault(board: dict[str, Any], expr: str, fault: str) -> None:
    """Unknown metrics, expressions that do not parse, and variables that nobody sets."""
    panel(board)["targets"] = [{"refId": "A", "expr": expr}]
    (found,) = lint(board)
    assert found.startswith(fault)


def test_panels_on_top_of_each_other_are_a_fault(board: dict[str, Any]) -> None:
    """So are those that reach past the grid."""
    one, other = [each for each in board["panels"] if each.get("targets")][:2]
    other["gridPos"] = dict(one["gridPos"])
    assert lint(board) == [f"panels {one['id']} and {other['id']} overlap"]
    one["gridPos"]["x"] = 20
    assert f"panel {one['id']} reaches past the right edge" in lint(board)


def test_readers_miss_what_is_not_said(board: dict[str, Any]) -> None:
    """Every panel says what it means and in which unit; the dashboard has an address."""
    del panel(board)["description"]
    assert lint_for_readers(board) == ["panel 2 has no description"]
    del panel(board)["fieldConfig"]["defaults"]["unit"]
    assert lint_for_readers(board) == ["panel 2 has no description", "panel 2 has no unit"]
    del board["uid"]
    assert lint_for_readers(board)[0].startswith("uid is missing")


def test_a_rule_must_say_what_it_means() -> None:
    """Alerts have a severity, a summary and a description; recorded series may be used."""
    rules = {
        "groups": [
            {
                "rules": [
                    {"record": "instance:x:sum", "expr": "sum(sglang:num_queue_reqs)"},
                    {"alert": "A", "expr": "instance:x:sum > 1", "annotations": {"summary": "s"}},
                    {"record": "y", "expr": "nothing_known"},
                ]
            }
        ]
    }
    assert lint_rules(rules) == [
        "rule A has no description",
        "rule A has no severity",
        "rule y: unknown metric nothing_known",
    ]


def test_parts_of_a_histogram_are_known() -> None:
    """A histogram is asked for by its parts, never by its name."""
    known = known_metrics()
    assert {"sglang:eviction_duration_seconds_sum", "sglang:time_to_first_token_seconds_bucket"} <= known
    assert "sglang:eviction_duration_seconds" not in known
    assert {"hicache_tune_trial_info", "hicache_tune_trials_total", "hicache_tune_nightly_environment_info"} <= known
