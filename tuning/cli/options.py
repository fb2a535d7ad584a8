"""The flags of `hicache-tune search`, and how they become a study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from cyclopts import Parameter

from scenarios.errors import ConfigError
from tuning.budget import parse_duration, parse_share
from tuning.cli.configuration import own_dimensions
from tuning.cli.target import AT_LEAST_0, AT_LEAST_2, EFFORT, SPACE, STUDY, WHAT, StudyOptions, nothing_restarts
from tuning.config import Effort, SamplerName, Search
from tuning.objective import TTFT_P99, Metric, ThroughputMetric, read_metric, read_objective
from tuning.space import DEFAULT_PRESET, Engine, Preset, preset_dimensions

M = TypeVar("M", bound=Metric)
ROUNDS_MOST = 3
"""How many times the rounds that all get may be played to settle what is in question."""
STRESSED: tuple[Engine, ...] = ("local", "docker")
"""A server of somebody else's gets no more load than was asked for, and a search on CPU is a quick one."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions(StudyOptions):
    """Every flag of a search."""

    objective: Annotated[
        str,
        Parameter(
            group=WHAT,
            help="What the best setting is best in, as `ttft.p99{tier=host}`, `tpot.p95`, `goodput{ttft=500ms}` or "
            "`throughput.tokens`.",
        ),
    ] = TTFT_P99.text
    pareto: Annotated[
        tuple[str, ...],
        Parameter(
            group=WHAT,
            negative="",
            help="Further goal, as `throughput`, `host_memory` or `reload_bytes`; may be repeated. Settings that trade "
            "the goals against each other are listed; the winner is chosen by --objective.",
        ),
    ] = ()
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
    sampler: Annotated[
        SamplerName,
        Parameter(
            group=EFFORT,
            help="How the next setting is chosen. `auto` weighs what was measured with what is expected of the load; "
            "the others are Optuna's own; `cmaes` heeds no constraints, `grid` takes every setting once.",
        ),
    ] = "auto"
    warm_start: Annotated[
        bool,
        Parameter(
            group=EFFORT,
            help="Begin with what did best in earlier studies of this model, machine and scenario in --results, and "
            "let `auto` use what is expected of the load.",
        ),
    ] = True
    confirm_top: Annotated[
        int, Parameter(group=EFFORT, validator=AT_LEAST_0, help="Best settings that are measured again on fresh seeds.")
    ] = 3
    confirm_rounds: Annotated[
        int, Parameter(group=EFFORT, validator=AT_LEAST_0, help="How often each is measured again, at least.")
    ] = 2
    confirm_until: Annotated[
        str,
        Parameter(
            group=EFFORT,
            help="Width of the interval of a difference that settles it: until then the best, the baseline and what "
            "ties with the best are measured again.",
        ),
    ] = "5%"
    confirm_rounds_most: Annotated[
        int | None,
        Parameter(
            group=EFFORT,
            validator=AT_LEAST_0,
            help="How often at most; by default three times --confirm-rounds, and --confirm-rounds on the CPU engine.",
        ),
    ] = None
    racing: Annotated[
        bool,
        Parameter(
            group=EFFORT,
            help="Stop the load of a proposal once it is surely worse than the best so far over the same sessions.",
        ),
    ] = True
    stress: Annotated[
        bool | None,
        Parameter(
            group=EFFORT,
            help="Measure the winner under 1.5 times the load too, if the budget allows it; by default with "
            "`local` and `docker`.",
        ),
    ] = None

    import_study: Annotated[
        str | None,
        Parameter(
            name="--import",
            group=STUDY,
            help="Take over the trials of this study in --results; a new study under equal conditions, scenario and "
            "seed, such as one over other choices.",
        ),
    ] = None

    def search(self) -> Search:
        """Resolve the flags to what is searched; raise ConfigError or ScenarioError that names the flag at fault."""
        if self.preset != DEFAULT_PRESET and self.engine == "attach" and not self.restart_hook:
            raise nothing_restarts(f"--preset {self.preset}")
        preset = preset_dimensions(self.engine, self.preset)
        objective = named("--objective", self.objective, read_objective)
        pareto = tuple(named("--pareto", text, read_metric) for text in self.pareto)
        texts = [metric.text for metric in (objective, *pareto)]
        if twice := next((text for text in texts if texts.count(text) > 1), None):
            raise ConfigError(f"--pareto `{twice}`: it is a goal already; leave it out")
        found = self.search_under(self.constraint, preset=preset, own=own_dimensions())
        if found.scenario.is_open and isinstance(objective, ThroughputMetric):
            raise ConfigError(
                f"--objective `{objective.text}`: the sessions of {found.scenario.name} arrive at their own rate, so "
                "every setting that sustains them answers as much; choose a latency or a goodput"
            )
        return found.model_copy(update={"objective": objective.text, "pareto": tuple(texts[1:])})

    def effort(self) -> Effort:
        """Resolve the flags to how much is spent."""
        values = {
            "trials": self.trials,
            "budget_s": parse_duration(self.budget, "--budget") if self.budget else None,
            "confirm_top": self.confirm_top,
            "confirm_rounds": self.confirm_rounds,
            "confirm_until": parse_share(self.confirm_until, "--confirm-until"),
            "confirm_rounds_most": self._rounds_most(),
            "racing": self.racing,
            "stress": self.engine in STRESSED if self.stress is None else self.stress,
            "ready_timeout_s": self.ready_timeout_s(),
            "sampler": self.sampler,
        }
        return Effort.parse(values, where="the flags")

    def _rounds_most(self) -> int:
        if self.confirm_rounds_most is None:
            return self.confirm_rounds * (1 if self.engine == "cpu" else ROUNDS_MOST)
        if self.confirm_rounds_most < self.confirm_rounds:
            raise ConfigError(
                f"--confirm-rounds-most {self.confirm_rounds_most} is below --confirm-rounds {self.confirm_rounds}; "
                "leave one of them out"
            )
        return self.confirm_rounds_most


def named(flag: str, text: str, read: Callable[[str], M]) -> M:
    """Read the metric that a flag was given; raise ConfigError that names the flag."""
    try:
        return read(text)
    except ConfigError as problem:
        raise ConfigError(f"{flag} `{text}`: {problem}") from None
