"""A scenario: what the users do, how many of them, and when they come; as a YAML file says it.

There are three: one kind of user (`Synthetic`), several kinds (`Mix`), and recorded sessions (`Replay`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from scenarios.arrivals import Arrivals, Poisson
from scenarios.distributions import Seconds
from scenarios.errors import ScenarioError
from scenarios.strict import FilePart, later
from scenarios.users import Users

Api = Literal["chat", "generate"]
"""`chat`: text over /v1/chat/completions. `generate`: token ids over /generate, exact to the token."""

GENERATOR_VERSION = 1
"""Raised whenever the same scenario and seed begin to give other sessions, so that results are not pooled."""

WORKING_SET = r"^\s*(\d+(?:\.\d+)?)\s*x\s+device\s+KV\s*$"


class Pace(FilePart):
    """How many sessions are played at a time; in an open load arrivals say that."""

    concurrency: int | None = Field(default=None, ge=1)
    """Slots: sessions that are alive at the same time. A free slot takes the next session at once."""
    working_set: Annotated[str, Field(pattern=WORKING_SET)] | None = later()
    """In place of `concurrency`: as many as fill this multiple of the engine's KV pool, such as `3x device KV`."""
    ramp_s: float | None = Field(default=None, ge=0)
    """Seconds over which the first session of each slot arrives, so that cold first turns do not stampede."""
    warm_up_s: Annotated[float, Field(ge=0)] | None = later()
    """Open loads: seconds in which arriving sessions are not counted yet; by default the length that 9 of 10 sessions
    do not pass, so that the number of live sessions has settled."""

    @property
    def device_pools(self) -> float | None:
        """Return how many times the engine's KV pool the live sessions shall fill."""
        return None if self.working_set is None else float(self.working_set.partition("x")[0])


class Sessions(Pace):
    """How many sessions are played, and how many at a time."""

    counted: int = Field(ge=1)
    """Sessions that are compared between settings; warm-up and filler sessions come on top."""


class RecordedSessions(Pace):
    """How many of the recorded sessions are counted, and how many are played at a time."""

    counted: Annotated[int, Field(ge=1)] | None = None
    """Left out: all that come after the warm-up, but for the last ones, which keep the load up."""


class _Load(FilePart):
    schema_version: Literal[1]
    name: str = Field(min_length=1)
    description: str = ""
    sessions: Pace
    arrivals: Arrivals | None = later()
    """In place of `sessions.concurrency`: when sessions arrive, however many are running."""
    api: Api = "chat"

    @model_validator(mode="after")
    def _closed_or_open(self) -> Self:
        pace = self.sessions
        ways = {
            "sessions.concurrency": pace.concurrency,
            "sessions.working_set": pace.working_set,
            "arrivals": self.arrivals,
        }
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"`{given[0]}` and `{given[1]}` exclude each other; keep one")
        if not given and not self._brings_arrivals():
            raise ValueError("one of `sessions.concurrency`, `sessions.working_set` and `arrivals` is needed")
        closed = bool(given) and self.arrivals is None
        if closed and pace.ramp_s is None:
            raise ValueError("`sessions.ramp_s` is missing: the seconds over which the first sessions arrive")
        if not closed and pace.ramp_s is not None:
            raise ValueError("`sessions.ramp_s` has no meaning in an open load; leave it out")
        if closed and pace.warm_up_s is not None:
            raise ValueError("`sessions.warm_up_s` has a meaning only in an open load; leave it out")
        return self

    def _brings_arrivals(self) -> bool:
        return False

    @property
    def is_open(self) -> bool:
        """Whether sessions arrive by a clock, not when others have ended."""
        return self.sessions.concurrency is None and self.sessions.working_set is None

    def scaled(
        self,
        *,
        concurrency: int | None = None,
        counted_sessions: int | None = None,
        rate_per_s: float | None = None,
    ) -> Self:
        """Return this scenario with other numbers of sessions or another arrival rate.

        Raise ScenarioError when they are out of range, and for a concurrency of an open scenario or a rate of a closed
        one.
        """
        changes: dict[str, object] = {}
        if counted_sessions is not None:
            changes["counted"] = counted_sessions
        if concurrency is not None:
            if self.is_open:
                raise ScenarioError(
                    f"the scenario {self.name} is open: its arrivals say how many sessions are alive; "
                    "change their rate, not the concurrency"
                )
            changes |= {"concurrency": concurrency, "working_set": None}
        scenario = self._with_sessions(**changes) if changes else self
        return scenario if rate_per_s is None else scenario._at_rate(rate_per_s)

    def opened(self, rate_per_s: float) -> Self:
        """Return this scenario as an open one in which `rate_per_s` sessions begin in a second.

        An open one keeps its process of arrivals; a closed one gets Poisson arrivals. Raise ScenarioError for a rate
        that is not above 0.
        """
        if self.arrivals is not None:
            return self._at_rate(rate_per_s)
        process = Poisson.parse(
            {"kind": "poisson", "rate_per_s": rate_per_s}, where=f"scenario {self.name}, arrivals", error=ScenarioError
        )
        bare = self._with_sessions(concurrency=None, working_set=None, ramp_s=None)
        return bare.model_copy(update={"arrivals": process})

    def sized(self, device_pool_tokens: int, tokens_per_session: float, shared_tokens: float = 0.0) -> Self:
        """Return this scenario with the concurrency that its `working_set` asks of an engine; others as they are.

        `device_pool_tokens` is the engine's KV pool; `tokens_per_session` what a live session holds of its own on
        average and `shared_tokens` what all hold together (see `PlanSummary`). Raise ScenarioError when that is less
        than one session.
        """
        pools = self.sessions.device_pools
        if pools is None:
            return self
        concurrency = int((pools * device_pool_tokens - shared_tokens) / tokens_per_session)
        if concurrency < 1:
            raise ScenarioError(
                f"scenario {self.name}: {self.sessions.working_set} is less than one session in a KV pool of "
                f"{device_pool_tokens} tokens; give more of it, or `concurrency`"
            )
        return self.scaled(concurrency=concurrency)

    def _at_rate(self, rate_per_s: float) -> Self:
        if self.arrivals is None:
            raise ScenarioError(f"the scenario {self.name} has no arrivals whose rate could be {rate_per_s:g} a second")
        if not 0 < rate_per_s < float("inf"):
            raise ScenarioError(f"scenario {self.name}: the rate is {rate_per_s:g} a second; give one above 0")
        return self.model_copy(update={"arrivals": self.arrivals.at_rate(rate_per_s)})

    def _with_sessions(self, **changes: object) -> Self:
        where = f"scenario {self.name}, sessions"
        checked = type(self.sessions).parse(self.sessions.model_dump() | changes, where=where, error=ScenarioError)
        return self.model_copy(update={"sessions": checked})


class Synthetic(_Load, Users):
    """Sessions of one kind of user, drawn at random. The same scenario and seed always give the same sessions."""

    sessions: Sessions


def _not_a_name(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f"the scenario {value} is named, not read; `load_scenario` reads it")
    return value


class Portion(FilePart):
    """One kind of user in a mix."""

    scenario: Annotated[Synthetic, BeforeValidator(_not_a_name, json_schema_input_type=str | Synthetic)]
    """Name of a built-in scenario, or path of a file from this one's folder; its numbers of sessions do not count."""
    share: float = Field(gt=0)
    """Share of the sessions; shares need not add up to 1."""


class Mix(_Load):
    """Sessions of several kinds of users at the same time, in proportion to their shares."""

    sessions: Sessions
    mix: Annotated[tuple[Portion, ...], Field(min_length=1, strict=False)]


class Recording(FilePart):
    """Recorded sessions, from a file that `hicache-tune scenario convert` wrote."""

    trace: Annotated[Path, Field(strict=False)]
    """The file, from this scenario's folder."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Digest of the file; a file with another one is refused."""
    sessions: Annotated[int, Field(ge=1)] | None = None
    """Take only so many of them, the earliest; each is taken whole. A load that needs more plays them again, in other
    words."""
    max_context_tokens: Annotated[int, Field(ge=1)] | None = None
    """Leave out sessions with a longer prompt and reply than this."""
    speed: float = Field(default=1.0, gt=0)
    """2: twice as fast. More than 1 also brings reuses closer together, and so flatters small caches."""
    max_think_s: Annotated[float, Field(ge=0)] | None = None
    """Cut longer pauses to this."""
    think_s: Seconds | None = None
    """Pauses of turns for which nothing is recorded; left out: none."""
    reply: Literal["model", "scripted"] = "scripted"
    """`scripted`: prompts share exactly what was recorded. `model`: the model's own words join the history."""


class Replay(_Load):
    """Recorded sessions, played again. Without `concurrency` and `arrivals` they arrive as they were recorded."""

    sessions: RecordedSessions = RecordedSessions()
    replay: Recording

    def _brings_arrivals(self) -> bool:
        return True


def _kind(data: Any) -> str:
    keys = data.keys() if isinstance(data, dict) else type(data).model_fields.keys()
    return next((kind for kind in ("mix", "replay") if kind in keys), "synthetic")


Scenario = Annotated[
    Annotated[Synthetic, Tag("synthetic")] | Annotated[Mix, Tag("mix")] | Annotated[Replay, Tag("replay")],
    Discriminator(_kind),
]
"""What the users do."""

_CLASSES: dict[str, type[Synthetic | Mix | Replay]] = {"synthetic": Synthetic, "mix": Mix, "replay": Replay}


def parse_scenario(data: dict[str, Any], *, where: str) -> Scenario:
    """Validate the content of a scenario file; raise ScenarioError that names `where` and the key at fault."""
    return _CLASSES[_kind(data)].parse(data, where=where, error=ScenarioError)


def fingerprint(scenario: Scenario) -> str:
    """Return 16 hex digits, equal for scenarios that ask for the same load; names for people do not count."""
    content = scenario.model_dump(mode="json", exclude={"name", "description"})
    for portion in content.get("mix", ()):
        for key in ("name", "description", "sessions", "arrivals", "api"):
            portion["scenario"].pop(key, None)
    content.get("replay", {}).pop("trace", None)  # its digest counts, not its place
    text = json.dumps({"generator": GENERATOR_VERSION, **content}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def schema_text() -> str:
    """Return the JSON Schema of scenario files, for editors; it is kept in scenario.schema.json."""
    content = TypeAdapter(Scenario).json_schema()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Scenario", **content}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"
