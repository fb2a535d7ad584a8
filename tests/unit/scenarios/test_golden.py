"""Plans and fingerprints of scenarios that studies were recorded with stay what they were, to the byte."""

import hashlib
import json
from pathlib import Path

import pytest

from scenarios.catalogue import load_scenario
from scenarios.making import make_plan
from scenarios.model import Api, fingerprint
from scenarios.plan import write_plan
from tests.support.bpe import prompt_tokenizer
from tuning.config import StudyFile

TOKENIZER = prompt_tokenizer(258)
EVIDENCE = Path(__file__).parents[3] / "docs" / "evidence"

FINGERPRINTS = {
    "coding-agent": "9e371d77903e9a7f",
    "cpu-chat": "326437b05c906fef",
    "cpu-smoke": "63960de7a0e8642c",
    "low-sharing": "efc77f5bbd22b880",
    "support-chat": "5e5bddd87583485e",
}

DIGESTS: dict[tuple[str, int, Api], str] = {
    ("coding-agent", 0, "chat"): "72cd862da7718fbc",
    ("coding-agent", 0, "generate"): "bf34a01b62efd91a",
    ("coding-agent", 1, "chat"): "0ff793e32d71264f",
    ("coding-agent", 1, "generate"): "e9215ca849bf7f91",
    ("cpu-chat", 0, "chat"): "4fd76c3db9d9938f",
    ("cpu-chat", 0, "generate"): "65adde59071bc0e5",
    ("cpu-chat", 1, "chat"): "f4833f5a73cbb8dc",
    ("cpu-chat", 1, "generate"): "2ef977a93d59714c",
    ("cpu-smoke", 0, "chat"): "76953a16948270e1",
    ("cpu-smoke", 0, "generate"): "9e960134dff8a64e",
    ("cpu-smoke", 1, "chat"): "544e0b55313bae92",
    ("cpu-smoke", 1, "generate"): "ba205248e190234f",
    ("low-sharing", 0, "chat"): "819311df9ad23dc0",
    ("low-sharing", 0, "generate"): "c39db3c115a63964",
    ("low-sharing", 1, "chat"): "f95a877d57ce9afb",
    ("low-sharing", 1, "generate"): "9299d22418f740df",
    ("support-chat", 0, "chat"): "9fc1a62accb62e99",
    ("support-chat", 0, "generate"): "47cd4d42cf749278",
    ("support-chat", 1, "chat"): "e8d63098c77c0a29",
    ("support-chat", 1, "generate"): "cbc6ae69d5a63138",
}
"""By scenario, seed and API; in words the GPU scenarios are cut short, as they take seconds to write."""


@pytest.mark.parametrize(("key", "digest"), DIGESTS.items(), ids=["-".join(map(str, key)) for key in DIGESTS])
def test_plan_is_the_recorded_one(key: tuple[str, int, Api], digest: str, tmp_path: Path) -> None:
    """The plan of a recorded scenario has the digest that it had when the generator was at version 1."""
    name, seed, api = key
    assert digest_of(name, seed, api, tmp_path) == digest


@pytest.mark.parametrize(("name", "expected"), FINGERPRINTS.items())
def test_fingerprint_is_the_recorded_one(name: str, expected: str) -> None:
    """Keys that scenarios have got since then do not change the fingerprint while they are left out."""
    assert fingerprint(load_scenario(name)) == expected


@pytest.mark.parametrize("path", sorted(EVIDENCE.glob("*/study.json")), ids=lambda path: path.parent.name)
def test_published_study_keeps_its_fingerprint(path: Path) -> None:
    """A study under docs/evidence is read, and its scenario still has the fingerprint that was written with it."""
    study = StudyFile.parse(json.loads(path.read_text(encoding="utf-8")), where=str(path))
    assert fingerprint(study.search.scenario) == study.scenario_fingerprint


def digest_of(name: str, seed: int, api: Api, folder: Path) -> str:
    """Digest the file of one plan."""
    scenario = load_scenario(name)
    if api == "chat" and not name.startswith("cpu-"):
        scenario = scenario.scaled(counted_sessions=6, concurrency=3)
    write_plan(make_plan(scenario, seed, TOKENIZER, api), folder / "plan.jsonl")
    return hashlib.sha256((folder / "plan.jsonl").read_bytes()).hexdigest()[:16]
