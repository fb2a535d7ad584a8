"""Under which conditions a night measures, and what a change since another night can come from (design rule 11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.engine.setting import Setting
from harness.environment import Environment
from harness.telemetry.nightly_exporter import CAUSES
from scenarios.strict import StrictModel
from tuning.config import Search

OF_ENVIRONMENT = {"sglang_version": "engine version", "driver": "driver"}
WORKLOAD = ("scenario", "api")
LAUNCH = ("engine", "image", "url", "tp_size", "dp_size", "engine_args", "keep_storage", "load_limit_s")
OTHERS = "conditions"
"""The cause of what is none of the others."""


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it was, and the cause that it stands for."""

    cause: str
    """One of CAUSES."""
    text: str


class Conditions(StrictModel):
    """Everything that the measurements of a night depend on."""

    environment: Environment
    search: Search
    production: Setting
    seeds: tuple[int, ...]
    """Of the sessions that are played each night."""

    def differences(self, earlier: Conditions) -> Iterator[Difference]:
        """Yield what is not as it was in an `earlier` night."""
        now, then = self.environment, earlier.environment
        for name in now.differing(then):
            yield Difference(OF_ENVIRONMENT.get(name, OTHERS), _words(name, getattr(then, name), getattr(now, name)))
        for names, cause in ((WORKLOAD, "workload"), (LAUNCH, OTHERS)):
            for name in names:
                was, is_now = getattr(earlier.search, name), getattr(self.search, name)
                if was != is_now:
                    changed = "the scenario has changed" if name == "scenario" else _words(name, was, is_now)
                    yield Difference(cause, changed)
        if self.seeds != earlier.seeds:
            yield Difference("workload", _words("the sessions' seed", earlier.seeds, self.seeds))
        if self.production.key != earlier.production.key:
            yield Difference(OTHERS, _words("the production setting", earlier.production.label, self.production.label))

    def same_sessions(self, earlier: Conditions) -> bool:
        """Whether both nights play the same sessions, at least those of the seeds that they share."""
        return all(getattr(self.search, name) == getattr(earlier.search, name) for name in WORKLOAD)


def cause_of(differences: Sequence[Difference]) -> str:
    """Return the likely cause of a change; where several things differ, the first of CAUSES."""
    causes = {difference.cause for difference in differences} or {OTHERS}
    return min(causes, key=CAUSES.index)


def in_words(differences: Iterable[Difference]) -> str:
    """Write the differences as part of a sentence."""
    return "; ".join(difference.text for difference in differences)


def _words(name: str, was: object, now: object) -> str:
    return f"{name} was {_plain(was)}, is {_plain(now)}"


def _plain(value: object) -> str:
    if value is None or value == ():
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
