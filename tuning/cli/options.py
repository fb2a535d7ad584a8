"""The flags of `hicache-tune search`, and how they become a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from tuning.budget import parse_duration
from tuning.cli.configuration import own_dimensions
from tuning.cli.target import AT_LEAST_0, AT_LEAST_2, EFFORT, SPACE, StudyOptions, nothing_restarts
from tuning.config import Effort, Search
from tuning.space import DEFAULT_PRESET, Preset, preset_dimensions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions(StudyOptions):
    """Every flag of a search."""

    preset: Annotated[
        Preset,
        Parameter(
            group=SPACE,
            help="What is searched where no flag says otherwise. `hicache`: HiCache alone. `hicache+memory`: memory "
            "fraction and page size too. `full`: chunks, policies, KV type and storage tier too.",
        ),
    ] = DEFAULT_PRESET
    trials: Annotated[
        int, Parameter(group=EFFORT, validator=AT_LEAST_2, help="Settings to measure, the two baselines included.")
    ] = 20
    budget: Annotated[
        str | None, Parameter(group=EFFORT, help="Time for search and confirmation, as 90s, 15m or 2h.")
    ] = None
    confirm_top: Annotated[
        int, Parameter(group=EFFORT, validator=AT_LEAST_0, help="Best settings that are measured again on fresh seeds.")
    ] = 3
    confirm_rounds: Annotated[
        int, Parameter(group=EFFORT, validator=AT_LEAST_0, help="How often each is measured again.")
    ] = 2

    def search(self) -> Search:
        """Resolve the flags to what is searched; raise ConfigError or ScenarioError that names the flag at fault."""
        if self.preset != DEFAULT_PRESET and self.engine == "attach" and not self.restart_hook:
            raise nothing_restarts(f"--preset {self.preset}")
        preset = preset_dimensions(self.engine, self.preset)
        return self.search_under(self.constraint, preset=preset, own=own_dimensions())

    def effort(self) -> Effort:
        """Resolve the flags to how much is spent."""
        values = {
            "trials": self.trials,
            "budget_s": parse_duration(self.budget, "--budget") if self.budget else None,
            "confirm_top": self.confirm_top,
            "confirm_rounds": self.confirm_rounds,
            "ready_timeout_s": self.ready_timeout_s(),
        }
        return Effort.parse(values, where="the flags")
