"""What one study is: everything that its measurements depend on, kept in study.json beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import Field

from harness.environment import Environment
from harness.errors import StoreError
from harness.files import write_atomically
from scenarios.errors import ConfigError
from scenarios.model import Api, Scenario, fingerprint
from scenarios.strict import StrictModel, later
from tuning.space import Dimension, Engine, Space

STUDY_FILE = "study.json"
SCHEMA_VERSION = 1
HOW_IT_IS_REACHED = frozenset({"api_key_env", "engine_port"})
"""What may differ from one resume to the next, as it says nothing of what is measured."""


SamplerName = Literal["auto", "tpe", "gp", "cmaes", "random", "grid"]
"""How the next setting is chosen; `auto` is what the search benchmark shows best."""


class Search(StrictModel):
    """What is searched, on what, under which load. Two searches that differ here are two studies."""

    engine: Engine
    engine_python: Path | None = None
    model: str
    tp_size: int = Field(default=1, ge=1)
    dp_size: int = Field(default=1, ge=1)
    image: str | None = None
    url: str | None = None
    restart_hook: tuple[str, ...] = ()
    restart_input: Literal["append", "json"] = "append"
    api_key_env: str | None = None
    engine_port: int | None = Field(default=None, ge=1, le=65535)
    engine_args: tuple[str, ...] = ()
    copy_gb_per_s: float | None = Field(default=None, gt=0)
    keep_storage: bool = False
    """Whether trials find what earlier ones left in the storage tier."""
    scenario: Scenario
    api: Api
    seed: int
    space: Space
    constraints: tuple[str, ...]
    objective: str = later("ttft.p99")
    pareto: tuple[str, ...] = later(())
    """Further goals, each a metric."""
    load_limit_s: float = Field(gt=0)

    @property
    def only_measures(self) -> bool:
        """Whether nothing restarts the engine, so that there is one setting: the one that it runs."""
        return self.engine == "attach" and not self.restart_hook


class Effort(StrictModel):
    """How much is spent; it may differ from one resume to the next."""

    trials: int = Field(ge=2)
    budget_s: float | None = Field(default=None, gt=0)
    confirm_top: int = Field(ge=0)
    confirm_rounds: int = Field(ge=0)
    confirm_rounds_most: int = Field(default=0, ge=0)
    """Rounds after `confirm_rounds` are played up to so many, while differences that count are not settled."""
    confirm_until: float = Field(default=0.05, gt=0)
    """Width of the interval of a relative difference that settles it."""
    racing: bool = True
    """Whether the load of a proposal ends early once it is surely worse than the best one so far."""
    stress: bool = False
    """Whether the winner is measured under more load too, if the budget allows it."""
    ready_timeout_s: float = Field(gt=0)
    sampler: SamplerName = "auto"

    def confirm_trials(self, baselines: int) -> int:
        """Count the trials of a whole confirmation: the top few and the baselines, in each round."""
        return (self.confirm_top + baselines) * self.confirm_rounds


class StudyFile(StrictModel):
    """study.json."""

    schema_version: int = SCHEMA_VERSION
    name: str
    search: Search
    environment: Environment
    scenario_fingerprint: str
    imported_from: str | None = None
    """The study whose trials were copied into this one when it was made."""
    earlier_spaces: tuple[Space, ...] = ()
    """What was searched before a resume changed the ends of a range; newest last."""

    @classmethod
    def of(cls, name: str, search: Search, environment: Environment) -> StudyFile:
        """Describe a new study."""
        return cls(name=name, search=search, environment=environment, scenario_fingerprint=fingerprint(search.scenario))


def open_study(root: Path, wanted: StudyFile, *, resume: bool) -> None:
    """Make the study's folder, or check that what is there is the same study; raise ConfigError if not."""
    path = root / STUDY_FILE
    if not path.exists():
        if resume:
            raise ConfigError(f"--resume: there is no study in {root}; leave --resume out to start it")
        write_atomically(path, wanted.model_dump_json(indent=1))
        return
    if not resume:
        raise ConfigError(f"the study {wanted.name} exists in {root}; give --resume to go on or another --study name")
    stored = read_study(root)
    if changed := [
        *differences(stored.search, wanted.search),
        *wanted.environment.differences(stored.environment),
    ]:
        raise ConfigError(
            f"--resume: {root} is another study: {'; '.join(changed)}; measurements under different conditions "
            "are not pooled, so choose another --study name"
        )
    if stored.search.space != wanted.search.space:
        earlier = (*stored.earlier_spaces, stored.search.space)
        kept = {"earlier_spaces": earlier, "imported_from": stored.imported_from}
        write_atomically(path, wanted.model_copy(update=kept).model_dump_json(indent=1))


def read_study(root: Path) -> StudyFile:
    """Read study.json; raise ConfigError when there is none, StoreError when it is damaged or newer."""
    path = root / STUDY_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = int(data["schema_version"])
    except FileNotFoundError:
        raise ConfigError(f"there is no study in {root}; see --results and --study") from None
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise StoreError(f"{path}: not readable ({problem!r}); restore it or start another study") from None
    if version > SCHEMA_VERSION:
        raise StoreError(f"{path}: written by a newer hicache-tune; upgrade to go on with it")
    return StudyFile.parse(data, where=str(path))


def differences(stored: Search, wanted: Search, *, apart_from: frozenset[str] = frozenset()) -> list[str]:
    """Name in words what makes two searches two, apart from what may differ."""
    found: list[str] = []
    for name in (name for name in Search.model_fields if name not in apart_from):
        was, now = getattr(stored, name), getattr(wanted, name)
        if isinstance(was, Space) and isinstance(now, Space):
            found += _space_differences(was, now)
        elif was != now and name not in HOW_IT_IS_REACHED:
            found.append(f"{name}: {'its content has changed' if name == 'scenario' else f'was {was}, is {now}'}")
    return found


def _space_differences(was: Space, now: Space) -> list[str]:
    """Name the dimensions that Optuna cannot continue: with other choices, or under other conditions.

    A range of numbers may get other ends; the measurements inside stay as good as they were.
    """
    found = []
    for name in sorted({dimension.name for space in (was, now) for dimension in space.dimensions}):
        old, new = was.find(name), now.find(name)
        if not _continues(old, new):
            same_values = old is not None and new is not None and old.values_text == new.values_text
            before, after = (_shown(dimension, conditions=same_values) for dimension in (old, new))
            found.append(f"{name}: was {before}, is {after}")
    return found


def _shown(dimension: Dimension | None, *, conditions: bool) -> str:
    if dimension is None:
        return "not searched"
    return dimension.text if conditions else dimension.values_text


def _continues(was: Dimension | None, now: Dimension | None) -> bool:
    if was is None or now is None or was.choices or now.choices:
        return was == now
    return (was.whole, was.log, was.when) == (now.whole, now.log, now.when)
