"""nightly.toml: what a nightly job measures, with what it compares, and whom it tells."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from scenarios.errors import ConfigError
from scenarios.strict import StrictModel, nearest
from tuning.budget import parse_duration
from tuning.cli.options import SearchOptions
from tuning.confirm import CONFIRM_SEED_OFFSET
from tuning.nightly.launch_words import LaunchWords

Mode = Literal["confirm", "search"]

ELSEWHERE: Mapping[str, str] = {
    "study": "each night names its own",
    "resume": "a night that was cut is resumed by itself",
    "results": "write `results` above the tables",
    "budget": "write `budget` above the tables, for the whole night",
    "confirm_rounds": "write `rounds` above the tables",
    "dry_run": "give --dry-run on the command line",
    "json": "give --json on the command line",
}
"""Flags of a search that are no keys of [search], and what to do instead."""
REPEAT_SHARE = 0.25
"""Part of a night's budget that its search leaves for measuring production again."""


class WebhookTable(StrictModel):
    """[webhook]: who is told of each night."""

    url_env: str
    """The environment variable with the address: it is a secret."""
    kind: Literal["json", "slack"] = "json"


class ProposalTable(StrictModel):
    """[proposal]: in which form better flags are handed to a person."""

    form: Literal["patch", "systemd", "kubernetes"] = "patch"
    target: str | None = None
    """The file, unit or deployment that has the flags now."""


class RetentionTable(StrictModel):
    """[retention]: how many of a job's studies are kept."""

    nights: int = Field(default=30, ge=1)
    days: int | None = Field(default=None, ge=1)


class NightlyConfig(StrictModel):
    """The whole file."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    job: str
    """Names the job: in the studies, in the history and as the label `job_name` of the metrics."""
    mode: Mode = "confirm"
    """`confirm` measures production again, `search` searches for a better setting too."""
    production: tuple[str, ...] | None = None
    """The engine's flags in production, or its whole launch command: a list of words, or one text as in a shell."""
    threshold: float = Field(default=0.1, gt=0)
    """How much slower the P99 may get: 0.1 is 10 %."""
    rounds: int = Field(default=2, ge=1)
    """On how many seeds production is measured; the same ones each night."""
    baseline: bool = True
    """Whether HiCache off at SGLang's defaults is measured beside production; a search always does."""
    budget: str | None = None
    every: str = "24h"
    """How often the job is started; a longer gap is a missed night."""
    results: Path = Path("results")
    history: Path | None = None
    textfile: Path | None = None
    """Where the metrics of the latest night are written."""
    webhook: WebhookTable | None = None
    proposal: ProposalTable = ProposalTable()
    retention: RetentionTable | None = None
    search: SearchOptions = SearchOptions()
    """What is measured: the flags of `hicache-tune search`."""

    @field_validator("job")
    @classmethod
    def _names_a_folder(cls, job: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", job):
            raise ValueError("use letters, digits, dots, dashes and underscores, as it names folders")
        return job

    @field_validator("production", mode="before")
    @classmethod
    def _words(cls, production: object) -> object:
        return shlex.split(production) if isinstance(production, str) else production

    @field_validator("search", mode="before")
    @classmethod
    def _keys_of_a_search(cls, table: object) -> object:
        """Take keys with dashes too, as the flags are written, and refuse those that are the job's own."""
        if not isinstance(table, Mapping):
            return table
        named = {str(key).replace("-", "_"): value for key, value in table.items()}
        named |= {name: named.pop(flag) for flag, name in (("search", "search_flag"),) if flag in named}
        for key in sorted(ELSEWHERE.keys() & named):
            raise ValueError(f"`{key}` is no key of [search]: {ELSEWHERE[key]}")
        known = {field.name for field in fields(SearchOptions)}
        for key in sorted(named.keys() - known):
            raise ValueError(f"unknown key `{key}`{nearest(key, known - ELSEWHERE.keys())}")
        return named

    @model_validator(mode="after")
    def _says_what_runs(self) -> Self:
        for name in ("budget", "every"):
            try:
                parse_duration(getattr(self, name) or "1s", name)
            except ConfigError as problem:
                raise ValueError(str(problem)) from None
        if self.only_measures:
            if self.production is not None or self.mode == "search":
                raise ValueError(
                    "nothing restarts the server at search.url, so production is what it runs and nothing is searched: "
                    "leave `production` and `mode` out, or give search.restart_hook"
                )
        elif self.production is None:
            raise ValueError("`production` is missing: give the engine's flags in production, [] for SGLang's defaults")
        if self.proposal.form != "patch" and not (self.production and LaunchWords.of(self.production).program):
            raise ValueError(
                f'`proposal.form` = "{self.proposal.form}" replaces the whole command line: write the whole launch '
                "command as `production`"
            )
        return self

    @property
    def only_measures(self) -> bool:
        """Whether nothing restarts the engine."""
        return self.search.engine == "attach" and not self.search.restart_hook

    @property
    def folder(self) -> Path:
        """The folder of what belongs to the job and to no single night."""
        return self.results / self.job

    @property
    def history_path(self) -> Path:
        """Where the nights are kept."""
        return self.history or self.folder / "history.sqlite"

    @property
    def textfile_path(self) -> Path:
        """Where the metrics of the latest night are written; always one file, as node_exporter adds all it finds."""
        return self.textfile or self.folder / "nightly.prom"

    @property
    def budget_s(self) -> float | None:
        """The time of a whole night."""
        return parse_duration(self.budget, "budget") if self.budget else None

    @property
    def every_s(self) -> float:
        """The time from one night to the next."""
        return parse_duration(self.every, "every")

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the sessions on which nights are compared."""
        first = self.search.seed + CONFIRM_SEED_OFFSET
        return tuple(range(first, first + self.rounds))

    def webhook_url(self) -> str | None:
        """Return the address to tell; raise ConfigError when its variable is not set."""
        if self.webhook is None:
            return None
        if url := os.environ.get(self.webhook.url_env):
            return url
        raise ConfigError(f"webhook.url_env: the variable {self.webhook.url_env} is not set; set it to the address")

    def options(self, study: str, *, resume: bool) -> SearchOptions:
        """Return the flags of tonight's study."""
        budget = None if self.budget_s is None else f"{self.budget_s * (1 - REPEAT_SHARE):.0f}s"
        return replace(
            self.search,
            study=study,
            results=self.results,
            budget=budget,
            confirm_rounds=self.rounds,
            resume=resume,
        )


def read_config(path: Path) -> NightlyConfig:
    """Read the file; raise ConfigError that names it and the key at fault."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(f"--config {path}: cannot be read ({problem.strerror}); name the job's file") from None
    except ValueError as problem:
        raise ConfigError(f"--config {path}: not valid TOML ({problem}); correct it there") from None
    return NightlyConfig.parse(data, where=str(path))
