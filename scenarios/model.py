"""What the users do, as a YAML file says it: sessions, turns, lengths and think times, drawn at random."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from scenarios.distributions import Counts, Seconds
from scenarios.errors import ScenarioError
from scenarios.strict import StrictModel

Api = Literal["chat", "generate"]
"""`chat`: text over /v1/chat/completions. `generate`: token ids over /generate, exact to the token."""

GENERATOR_VERSION = 1
"""Raised whenever the same scenario and seed begin to give other sessions, so that results are not pooled."""


class _Part(StrictModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Sessions(_Part):
    """How many sessions are played, and how many at a time."""

    counted: int = Field(ge=1)
    """Sessions that are compared between settings; warm-up and filler sessions come on top."""
    concurrency: int = Field(ge=1)
    """Slots: sessions that are alive at the same time. A free slot takes the next session at once."""
    ramp_s: float = Field(ge=0)
    """Seconds over which the first session of each slot arrives, so that cold first turns do not stampede."""


class SystemPrompts(_Part):
    """The system prompts that sessions begin with."""

    tokens: Counts
    """Length of a system prompt."""
    shared: bool = True
    """True: sessions draw theirs from `count` common ones. False: every session has its own."""
    count: int = Field(default=1, ge=1)
    """How many different system prompts the sessions share."""

    @model_validator(mode="after")
    def _count_needs_sharing(self) -> Self:
        if not self.shared and self.count != 1:
            raise ValueError("`count` has a meaning only with `shared: true`; leave it out")
        return self


class Scenario(_Part):
    """What the users do. The same scenario and seed always give the same sessions."""

    schema_version: Literal[1]
    name: str = Field(min_length=1)
    description: str = ""
    sessions: Sessions
    turns: Counts
    """Requests of a session."""
    system_prompts: SystemPrompts | None = None
    """Left out: sessions have no system prompt."""
    first_user_tokens: Counts
    """Length of a session's first user message."""
    user_tokens: Counts
    """Length of the later user messages, with all that a turn adds: tool outputs, retrieved text."""
    output_tokens: Counts
    """Length of a reply: what the engine is asked to generate."""
    think_s: Seconds
    """Seconds between a reply and the user's next message."""
    reply: Literal["model", "scripted"] = "model"
    """What joins the history: the model's own words, or scripted ones that no setting can change."""
    api: Api = "chat"

    def scaled(self, *, concurrency: int | None = None, counted_sessions: int | None = None) -> Scenario:
        """Return this scenario with other numbers of sessions; raise ScenarioError when they are below 1."""
        changes = {"concurrency": concurrency, "counted": counted_sessions}
        sessions = self.sessions.model_dump() | {key: n for key, n in changes.items() if n is not None}
        where = f"scenario {self.name}, sessions"
        checked = Sessions.parse(sessions, where=where, error=ScenarioError)
        return self.model_copy(update={"sessions": checked})


def fingerprint(scenario: Scenario) -> str:
    """Return 16 hex digits, equal for scenarios that ask for the same load; names for people do not count."""
    content = scenario.model_dump(mode="json", exclude={"name", "description"})
    text = json.dumps({"generator": GENERATOR_VERSION, **content}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def schema_text() -> str:
    """Return the JSON Schema of scenario files, for editors; it is kept in scenario.schema.json."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Scenario.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"
