"""What the users do: sessions of turns with their lengths, think times and shared prompts, made from a seed.

Knows nothing of engines. `load_scenario` reads what is asked for, `make_plan` writes the words of it, `describe`
says what it amounts to, and `write_plan` hands it to the load process.
"""

from scenarios.catalogue import list_scenarios, load_scenario
from scenarios.errors import ConfigError, HicacheTuneError, ScenarioError
from scenarios.making import make_plan
from scenarios.model import Api, Scenario, fingerprint, schema_text
from scenarios.plan import Phase, Plan, Session, Turn, read_plan, write_plan
from scenarios.sizing import sized
from scenarios.summary import PlanSummary, describe
from scenarios.tokenizer import PromptTokenizer

__all__ = [
    "Api",
    "ConfigError",
    "HicacheTuneError",
    "Phase",
    "Plan",
    "PlanSummary",
    "PromptTokenizer",
    "Scenario",
    "ScenarioError",
    "Session",
    "Turn",
    "describe",
    "fingerprint",
    "list_scenarios",
    "load_scenario",
    "make_plan",
    "read_plan",
    "schema_text",
    "sized",
    "write_plan",
]
