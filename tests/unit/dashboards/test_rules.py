"""Prometheus takes the configuration, and every rule does what it is for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.files import PROMETHEUS_FOLDER, RULES_FOLDER
from dashboards.lint import lint_rules
from tests.support.prometheus import program

TESTS = Path(__file__).parent / "promtool"


def read(path: Path) -> dict[str, Any]:
    """Read a YAML file."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def all_rules() -> dict[str, Any]:
    """Read all rule files as one, since alerts use what others record."""
    return {"groups": [group for path in sorted(RULES_FOLDER.glob("*.yml")) for group in read(path)["groups"]]}


def promtool(*arguments: str) -> str:
    """Run promtool and return what it says; fail when it finds a fault."""
    ended = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_prometheus_takes_the_configuration() -> None:
    """Syntax, rule files and target files, as Prometheus itself checks them."""
    assert "SUCCESS" in promtool("check", "config", str(PROMETHEUS_FOLDER / "prometheus.yml"))


@pytest.mark.parametrize("path", sorted(TESTS.glob("*.yml")), ids=lambda path: path.stem)
def test_rules_do_what_they_are_for(path: Path) -> None:
    """The unit tests of the rules: each fires when it should, and not otherwise."""
    promtool("test", "rules", str(path))


def test_rules_use_metrics_that_exist() -> None:
    """And alerts say how bad it is and what to do."""
    assert lint_rules(all_rules()) == []


def test_every_alert_is_tested() -> None:
    """An alert without a test that makes it fire is a hope."""
    alerts = {rule["alert"] for group in all_rules()["groups"] for rule in group["rules"] if "alert" in rule}
    tests = [test for path in TESTS.glob("alerts*.yml") for test in read(path)["tests"]]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert alerts == {case["alertname"] for case in cases if case["exp_alerts"]}
