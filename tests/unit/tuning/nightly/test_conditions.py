"""What differs between two nights, and the cause that it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine.setting import Setting
from harness.environment import Environment
from scenarios import load_scenario
from tuning.config import Search
from tuning.nightly.conditions import Conditions
from tuning.space import Ranges

ENVIRONMENT = Environment(
    host="a",
    processor="EPYC",
    cores=2,
    memory_gib=24,
    gpus=("H200",),
    driver="570.1",
    sglang_version="0.5.15",
    model="m",
    device="cuda",
    copy_gb_per_s=None,
    tool_version="0.1.0",
)
SCENARIO = load_scenario("cpu-smoke")
SEARCH = Search(
    engine="local",
    model="m",
    scenario=SCENARIO,
    api=SCENARIO.api,
    seed=1,
    space=Ranges().space(),
    constraints=(),
    load_limit_s=600,
)
THEN = Conditions(environment=ENVIRONMENT, search=SEARCH, production=Setting(), seeds=(1001,))


def now(environment: dict[str, Any] | None = None, search: dict[str, Any] | None = None, **changes: Any) -> Conditions:
    """Make tonight's conditions."""
    parts = {
        "environment": ENVIRONMENT.model_copy(update=environment or {}),
        "search": SEARCH.model_copy(update=search or {}),
    }
    return THEN.model_copy(update={**parts, **changes})


@pytest.mark.parametrize(
    ("conditions", "cause", "text"),
    [
        (now({"sglang_version": "0.5.16"}), "engine version", "sglang_version was 0.5.15, is 0.5.16"),
        (now({"driver": None}), "driver", "driver was 570.1, is none"),
        (now({"gpus": ("H200", "H200")}), "conditions", "gpus was H200, is H200, H200"),
        (now({"cores": 4}), "conditions", "cores was 2, is 4"),
        (now(search={"scenario": SCENARIO.scaled(counted_sessions=5)}), "workload", "the scenario has changed"),
        (now(search={"engine_args": ("--x=1",)}), "conditions", "engine_args was none, is --x=1"),
        (now(seeds=(7,)), "workload", "the sessions' seed was 1001, is 7"),
        (
            now(production=Setting(page_size=64)),
            "conditions",
            "the production setting was HiCache off, is HiCache off, page 64",
        ),
    ],
)
def test_what_differs_is_named_with_its_cause(conditions: Conditions, cause: str, text: str) -> None:
    """Each by itself."""
    assert [(found.cause, found.text) for found in conditions.differences(THEN)] == [(cause, text)]


@pytest.mark.parametrize(
    "conditions",
    [
        now(),
        now({"host": "b", "memory_gib": 25, "tool_version": "0.2.0"}),
        now(search={"space": Ranges(page_size="16").space(), "api_key_env": "KEY", "engine_port": 1234}),
    ],
)
def test_what_may_differ_is_no_difference(conditions: Conditions) -> None:
    """A rented host is another each time, and what is searched besides says nothing of production."""
    assert list(conditions.differences(THEN)) == []


def test_sessions_are_those_of_scenario_and_endpoint() -> None:
    """Other seeds leave those in common to be compared."""
    assert now(seeds=(1001, 1002)).same_sessions(THEN)
    assert not now(search={"scenario": SCENARIO.scaled(counted_sessions=5)}).same_sessions(THEN)
