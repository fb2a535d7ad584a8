"""`hicache-tune find-limit`: the highest session rate that keeps a service level."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from scenarios import Plan
from scenarios.errors import ConfigError
from tuning.budget import parse_duration
from tuning.cli.target import ABOVE_0, EFFORT, SGLANG_DEFAULT, SPACE, StudyOptions
from tuning.config import Effort, Search
from tuning.limit import Bisection, rounded
from tuning.objective import TTFT_P99, Constraint
from tuning.space import Ranges, one_setting

if TYPE_CHECKING:
    from tuning.limit_finder import Limit, ProbeResult

LEVEL = Group("What must be kept, and which rates are probed", sort_key=0)
LIMIT_FILE = "limit.json"
OK, NONE_KEPT, BUDGET_ENDED, INTERRUPTED = 0, 2, 124, 130
FIRST_SHARE = 0.25
"""Part of the load's own rate that is probed first: a rate that is kept is a quicker probe than one that is missed."""
NOMINAL_REPLY_S = 1.0
PLANNED_PROBES = 10
"""About what a search takes; only shown."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LimitOptions(StudyOptions):
    """Every flag of a search for a limit."""

    slo: Annotated[
        tuple[str, ...],
        Parameter(group=LEVEL, negative="", help="Service level, as `ttft.p99 <= 2s`; may be repeated."),
    ] = ("ttft.p99 <= 2s",)
    start_rate: Annotated[
        float | None,
        Parameter(group=LEVEL, validator=ABOVE_0, help="First rate in sessions/s; by default a guess from the load."),
    ] = None
    min_rate: Annotated[
        float, Parameter(group=LEVEL, validator=ABOVE_0, help="Rates below are not probed, in sessions/s.")
    ] = 0.001
    max_rate: Annotated[
        float, Parameter(group=LEVEL, validator=ABOVE_0, help="Rates above are not probed, in sessions/s.")
    ] = 1000.0
    precision: Annotated[
        float,
        Parameter(group=LEVEL, validator=Number(gte=0.01, lte=1), help="Relative width of the gap that is left."),
    ] = 0.1
    budget: Annotated[str | None, Parameter(group=EFFORT, help="Time for all probes, as 15m or 2h.")] = None
    hicache: Annotated[
        str, Parameter(group=SPACE, help="`on` or `off`; by default `on` when a flag of its host pool is given.")
    ] = SGLANG_DEFAULT

    def search(self) -> Search:
        """Resolve the flags to what is measured; raise ConfigError or ScenarioError that names the flag at fault."""
        for text in self.slo:
            if not Constraint.parse(text).at_most:
                raise ConfigError(f"--slo `{text}`: a service level is an upper bound; write METRIC <= LIMIT")
        if self.min_rate > self.max_rate:
            raise ConfigError(f"--min-rate {self.min_rate:g} is above --max-rate {self.max_rate:g}; swap them")
        self.budget_s()
        return self._with_one_setting().search_under((*self.slo, *self.constraint))

    def _with_one_setting(self) -> Self:
        """Leave every flag that is not given to SGLang's own default: the ranges of a search are no setting."""
        if self.engine == "attach" and not self.restart_hook:  # the server's own setting is the one
            return replace(self, hicache=Ranges().hicache) if self.hicache == SGLANG_DEFAULT else self
        pool = (self.hicache_ratio, self.hicache_size, self.hicache_write_policy, self.transfer)
        with_pool = any(value not in (None, SGLANG_DEFAULT) for value in pool)
        return replace(
            self,
            hicache=("on" if with_pool else "off") if self.hicache == SGLANG_DEFAULT else self.hicache,
            mem_fraction_static=self.mem_fraction_static or SGLANG_DEFAULT,
            hicache_ratio=self.hicache_ratio or SGLANG_DEFAULT,
            hicache_write_policy=self.hicache_write_policy or SGLANG_DEFAULT,
            transfer=self.transfer or SGLANG_DEFAULT,
            page_size=self.page_size or SGLANG_DEFAULT,
        )

    def budget_s(self) -> float | None:
        """Read the time for all probes; raise ConfigError when it is none."""
        return parse_duration(self.budget, "--budget") if self.budget else None

    def effort(self) -> Effort:
        """Resolve the flags to how much is spent; only the launch's time-out has a meaning here."""
        return Effort(trials=2, confirm_top=0, confirm_rounds=0, ready_timeout_s=self.ready_timeout_s())


def find_limit(options: LimitOptions | None = None) -> int:
    """Find the highest rate of new sessions at which one setting keeps a service level."""
    options = options or LimitOptions()
    console = Console(stderr=True)
    wanted = options.search()
    setting = one_setting(wanted.space)
    from tuning.engines import engine_spec

    spec = engine_spec(wanted, options.effort())
    root = (options.results / options.study_name(wanted, suffix="-limit")).absolute()
    if options.dry_run:
        _show_plan(console, options, wanted, setting, spec)
        return OK
    return _find(console, options, wanted, setting, spec, root)


def _find(
    console: Console, options: LimitOptions, wanted: Search, setting: Setting, spec: EngineSpec, root: Path
) -> int:
    from harness.files import write_atomically
    from tuning.cli.opened import opened
    from tuning.cli.sizing import settled
    from tuning.limit_finder import LimitFinder

    wanted = settled(console, wanted, spec, root)
    with opened(console, options, wanted, spec, root, planned=PLANNED_PROBES) as study:
        study.lab.slo_ttft_s = ttft_level_s(wanted)
        finder = LimitFinder(
            lab=study.lab,
            setting=setting,
            objective=study.objective,
            how=_bisection(options, study.plan(wanted.scenario, wanted.seed)),
            watch=study.watch,
            make_plan=lambda rate_per_s, seed: study.plan(wanted.scenario.opened(rate_per_s), seed),
            budget_s=options.budget_s(),
        )
        limit = finder.run()
    text = limit.model_dump_json(indent=1) + "\n"
    write_atomically(root / LIMIT_FILE, text)
    console.print(probes_table(limit))
    console.print(f"\n[bold]{escape(limit.sentence)}[/]")
    if options.json:
        sys.stdout.write(text)
    if limit.ended == "interrupted":
        console.print(f"\nStopped. Nothing is lost; go on with the same flags and --study {escape(root.name)} --resume")
    return {"found": OK, "none missed": OK, "none kept": NONE_KEPT, "budget": BUDGET_ENDED}.get(
        limit.ended, INTERRUPTED
    )


def ttft_level_s(wanted: Search) -> float | None:
    """Return the strictest bound on the TTFT P99: a load that has missed it for good can end at once."""
    levels = map(Constraint.parse, wanted.constraints)
    return min((level.limit for level in levels if level.metric == TTFT_P99 and level.at_most), default=None)


def probes_table(limit: Limit) -> Table:
    """Show every probe, slowest rate first."""
    table = Table("sessions/s", "requests/s", "TTFT P50", "TTFT P99", "", box=box.SIMPLE_HEAD, title="Rates probed")
    for column in table.columns[:4]:
        column.justify = "right"
    for probe in limit.probes:
        table.add_row(
            f"{probe.rate_per_s:g}",
            _figure(probe.requests_per_s, "{:.2f}"),
            _figure(probe.p50_s, "{:.3f} s"),
            _p99(probe),
            "kept" if probe.meets else escape(probe.why_not),
            style="" if probe.meets else "dim",
        )
    return table


def _p99(probe: ProbeResult) -> str:
    span = ""
    if probe.p99_low_s is not None and probe.p99_high_s is not None:
        span = escape(f" [{probe.p99_low_s:.3f}, {probe.p99_high_s:.3f}]")
    return _figure(probe.p99_s, "{:.3f} s") + span


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _bisection(options: LimitOptions, plan: Plan) -> Bisection:
    start = options.start_rate or FIRST_SHARE * nominal_rate_per_s(plan)
    return Bisection(
        start_per_s=rounded(min(max(start, options.min_rate), options.max_rate)),
        least_per_s=options.min_rate,
        most_per_s=options.max_rate,
        precision=options.precision,
        seed=plan.seed,
    )


def nominal_rate_per_s(plan: Plan) -> float:
    """Return the rate at which sessions of a plan would come if every reply took a second."""
    if plan.rate_per_s is not None:
        return plan.rate_per_s
    lasts_s = [sum(turn.think_s + NOMINAL_REPLY_S for turn in session.turns) for session in plan.sessions]
    return plan.slots * len(lasts_s) / sum(lasts_s)


def _show_plan(console: Console, options: LimitOptions, wanted: Search, setting: Setting, spec: EngineSpec) -> None:
    import shlex

    from scenarios import PromptTokenizer, make_plan
    from tuning.engines import command_of

    how = _bisection(options, make_plan(wanted.scenario, wanted.seed, PromptTokenizer.load(wanted.model), wanted.api))
    console.print(f"[bold]{escape(setting.label)}[/]")
    if command := command_of(wanted, spec, setting):
        console.print(escape(shlex.join(command)), soft_wrap=True, highlight=False)
    console.print(
        f"scenario {wanted.scenario.name}; first rate {how.start_per_s:g} sessions/s, then doubled until "
        f"{' and '.join(options.slo)} is missed, then halved to within {how.precision:.0%}"
    )
