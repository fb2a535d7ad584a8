"""A scenario keeps its identity: scaled copies, fingerprints, and a schema for editors."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import scenarios
from scenarios.catalogue import list_scenarios, load_scenario
from scenarios.errors import ScenarioError
from scenarios.model import Mix, Portion, Scenario, fingerprint, parse_scenario, schema_text

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
    assert fingerprint(parse_scenario(spelled_out, where="copy")) == fingerprint(scenario)
    assert fingerprint(scenario.scaled(counted_sessions=41)) != fingerprint(scenario)
    assert len({fingerprint(load_scenario(name)) for name in list_scenarios()}) == len(list_scenarios())


def test_fingerprint_is_stable() -> None:
    """Fingerprints are compared between nights: a change here means that old results are not pooled."""
    text = "{schema_version: 1, name: x, sessions: {counted: 1, concurrency: 1, ramp_s: 0}, turns: 1, think_s: 0,"
    data = yaml.safe_load(text + "first_user_tokens: 1, user_tokens: 1, output_tokens: 1}")
    assert fingerprint(parse_scenario(data, where="x")) == "cd2a30fd05d20c8d"


def test_schema_file_is_fresh() -> None:
    """The schema that editors use is that of the model; write `schema_text()` to the file when this fails."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_schema_tells_editors_what_keys_mean() -> None:
    """Every key of a scenario that needs words has them, and a length may be a bare number."""
    properties = json.loads(schema_text())["$defs"]["Synthetic"]["properties"]
    assert properties["think_s"]["description"].startswith("Seconds between a reply")
    assert {"type": "number"} in properties["turns"]["anyOf"]


def test_opened_drops_the_slots() -> None:
    """A closed scenario becomes an open one of the same sessions; an open one keeps its process."""
    closed = load_scenario("cpu-chat")
    opened = closed.opened(2.5)
    assert opened.is_open
    assert not closed.is_open
    assert (opened.sessions.concurrency, opened.sessions.ramp_s, opened.sessions.counted) == (None, None, 24)
    assert opened.arrivals is not None
    assert (opened.arrivals.kind, opened.arrivals.mean_per_s) == ("poisson", 2.5)
    gamma = {"kind": "gamma", "rate_per_s": 1, "cv": 2}
    bursty = parse_scenario({**opened.model_dump(mode="json"), "arrivals": gamma}, where="x")
    again = bursty.opened(3.0).arrivals
    assert again is not None
    assert again.model_dump() == {**gamma, "rate_per_s": 3.0}
    assert bursty.scaled(rate_per_s=3.0) == bursty.opened(3.0)
    assert fingerprint(bursty) != fingerprint(opened)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.scaled(rate_per_s=2.0), "the scenario cpu-chat has no arrivals whose rate could be 2 a second"),
        (lambda s: s.opened(0.0), "scenario cpu-chat, arrivals: `rate_per_s`: input should be greater than 0"),
        (lambda s: s.opened(1.0).opened(-1.0), "scenario cpu-chat: the rate is -1 a second; give one above 0"),
        (
            lambda s: s.opened(1.0).scaled(concurrency=3),
            "the scenario cpu-chat is open: its arrivals say how many sessions are alive; change their rate, not the "
            "concurrency",
        ),
    ],
)
def test_rates_that_make_no_sense(change: Callable[[Scenario], Scenario], message: str) -> None:
    """A rate of a closed scenario, a concurrency of an open one, and a rate of 0 are refused in one sentence."""
    with pytest.raises(ScenarioError) as caught:
        change(load_scenario("cpu-chat"))
    assert str(caught.value) == message


def test_every_scenario_survives_study_json() -> None:
    """What a study keeps is read back as the same scenario, open ones and mixes too."""
    for name in list_scenarios():
        for scenario in (load_scenario(name), load_scenario(name).opened(1.5)):
            stored = json.loads(scenario.model_dump_json())
            assert parse_scenario(stored, where=name) == scenario
            assert fingerprint(parse_scenario(stored, where=name)) == fingerprint(scenario)


def test_fingerprint_of_a_mix_is_of_its_users() -> None:
    """In a mix the parts' own names and numbers of sessions do not count; their users and shares do."""
    mix = load_scenario("mixed-night")
    assert isinstance(mix, Mix)
    first = mix.mix[0]

    def with_first(portion: Portion) -> str:
        return fingerprint(mix.model_copy(update={"mix": (portion, *mix.mix[1:])}))

    renamed = first.scenario.scaled(concurrency=5).model_copy(update={"name": "x"})
    assert with_first(first.model_copy(update={"scenario": renamed})) == fingerprint(mix)
    assert with_first(first.model_copy(update={"share": 0.4})) != fingerprint(mix)
    terse = first.scenario.model_copy(update={"turns": first.scenario.output_tokens})
    assert with_first(first.model_copy(update={"scenario": terse})) != fingerprint(mix)
