"""A scenario keeps its identity: scaled copies, fingerprints, and a schema for editors."""

import json
from pathlib import Path

import pytest
import yaml

import scenarios
from scenarios.catalogue import list_scenarios, load_scenario
from scenarios.errors import ScenarioError
from scenarios.model import Scenario, fingerprint, schema_text

SCHEMA_FILE = Path(scenarios.__file__).with_name("scenario.schema.json")


def test_scaled_changes_only_the_numbers_of_sessions() -> None:
    """The command line's overrides leave the ramp and all distributions as they are."""
    scenario = load_scenario("cpu-chat")
    scaled = scenario.scaled(concurrency=24, counted_sessions=7)
    assert (scaled.sessions.concurrency, scaled.sessions.counted, scaled.sessions.ramp_s) == (24, 7, 6)
    assert scaled.model_copy(update={"sessions": scenario.sessions}) == scenario
    assert scenario.scaled() == scenario


def test_scaled_refuses_nothing_to_play() -> None:
    """A concurrency of 0 is refused like the same key in a file."""
    with pytest.raises(ScenarioError) as caught:
        load_scenario("cpu-chat").scaled(concurrency=0)
    assert str(caught.value) == (
        "scenario cpu-chat, sessions: `concurrency`: input should be greater than or equal to 1"
    )


def test_fingerprint_is_of_the_load() -> None:
    """Another load has another fingerprint; a new description, name or spelling of it has not."""
    scenario = load_scenario("cpu-chat")
    assert fingerprint(scenario) == fingerprint(scenario.model_copy(update={"name": "x", "description": "y"}))
    spelled_out = {**scenario.model_dump(), "output_tokens": {"kind": "constant", "value": 8}}
    assert fingerprint(Scenario.parse(spelled_out, where="copy")) == fingerprint(scenario)
    assert fingerprint(scenario.scaled(counted_sessions=41)) != fingerprint(scenario)
    assert len({fingerprint(load_scenario(name)) for name in list_scenarios()}) == len(list_scenarios())


def test_fingerprint_is_stable() -> None:
    """Fingerprints are compared between nights: a change here means that old results are not pooled."""
    text = "{schema_version: 1, name: x, sessions: {counted: 1, concurrency: 1, ramp_s: 0}, turns: 1, think_s: 0,"
    data = yaml.safe_load(text + "first_user_tokens: 1, user_tokens: 1, output_tokens: 1}")
    assert fingerprint(Scenario.parse(data, where="x")) == "cd2a30fd05d20c8d"


def test_schema_file_is_fresh() -> None:
    """The schema that editors use is that of the model; write `schema_text()` to the file when this fails."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_schema_tells_editors_what_keys_mean() -> None:
    """Every key of a scenario that needs words has them, and a length may be a bare number."""
    properties = json.loads(schema_text())["properties"]
    assert properties["think_s"]["description"].startswith("Seconds between a reply")
    assert {"type": "number"} in properties["turns"]["anyOf"]
