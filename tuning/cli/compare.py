"""`hicache-tune compare`: which of two settings is better, and by how much."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from scenarios.errors import ConfigError
from tuning.budget import parse_duration, parse_share
from tuning.cli.options import named
from tuning.cli.target import AT_LEAST_1, EFFORT, WHAT, StudyOptions
from tuning.config import Effort, Search
from tuning.objective import TTFT_P99, read_objective
from tuning.space import Ranges, both

if TYPE_CHECKING:
    from tuning.comparison import Comparison

COMPARISON_FILE = "compare.json"
OK, NEITHER, BUDGET_ENDED, INTERRUPTED = 0, 2, 124, 130


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompareOptions(StudyOptions):
    """Every flag of a comparison."""

    objective: Annotated[
        str,
        Parameter(group=WHAT, help="What they are compared in, such as `tpot.p95` or `goodput{ttft=500ms}`."),
    ] = TTFT_P99.text
    rounds: Annotated[
        int, Parameter(group=EFFORT, validator=AT_LEAST_1, help="How often each is measured, at least.")
    ] = 2
    rounds_most: Annotated[
        int, Parameter(group=EFFORT, validator=AT_LEAST_1, help="How often each is measured, at most.")
    ] = 10
    until: Annotated[
        str, Parameter(group=EFFORT, help="Width of the interval of the difference that is narrow enough.")
    ] = "5%"
    budget: Annotated[str | None, Parameter(group=EFFORT, help="Time for all trials, as 15m or 2h.")] = None

    def search(self, pair: tuple[Setting, Setting]) -> Search:
        """Resolve the flags to what is measured; raise ConfigError or ScenarioError that names the flag at fault."""
        for name in Ranges.model_fields:
            if getattr(self, name) != StudyOptions.__dataclass_fields__[name].default:
                raise ConfigError(f"--{name.replace('_', '-')}: compare searches nothing; write it in A or B")
        if self.search_flag:
            raise ConfigError("--search: compare searches nothing; write the flag in A or B, as schedule-policy=lpm")
        if self.engine == "attach" and not self.restart_hook:
            raise ConfigError("--engine attach: nothing restarts the server with another setting; give --restart-hook")
        if self.rounds_most < self.rounds:
            raise ConfigError(f"--rounds-most {self.rounds_most} is below --rounds {self.rounds}; raise it")
        objective = named("--objective", self.objective, read_objective)
        found = self.search_under(self.constraint, space=both(*pair))
        return found.model_copy(update={"objective": objective.text})

    def budget_s(self) -> float | None:
        """Read the time for all trials; raise ConfigError when it is none."""
        return parse_duration(self.budget, "--budget") if self.budget else None

    def effort(self) -> Effort:
        """Resolve the flags to how much is spent; only the launch's time-out has a meaning here."""
        return Effort(trials=2, confirm_top=0, confirm_rounds=0, ready_timeout_s=self.ready_timeout_s())


def compare(a: str, b: str, /, *, options: CompareOptions | None = None) -> int:
    """Measure two settings in turn on fresh sessions, until it is known which is better, by default in TTFT P99.

    Parameters
    ----------
    a
        The setting that B is compared with: `off`, `hicache,ratio=4,write_through`, a label of a report, or
        `STUDY:NUMBER`, the setting of that trial of an earlier study.
    b
        The other setting, written in the same way.
    """
    from tuning.engines import engine_spec
    from tuning.written import read_setting

    options = options or CompareOptions()
    console = Console(stderr=True)
    written = (read_setting(a, options.results), read_setting(b, options.results))
    wanted, until = options.search(written), parse_share(options.until, "--until")
    options.budget_s()
    spec = engine_spec(wanted, options.effort())
    pair = (spec.canonical(written[0]), spec.canonical(written[1]))
    if pair[0].key == pair[1].key:
        raise ConfigError(f"`{a}` and `{b}` give the same server ({pair[0].label}); compare two that differ")
    root = (options.results / options.study_name(wanted, suffix="-compare")).absolute()
    if options.dry_run:
        _show_plan(console, options, wanted, spec, pair)
        return OK
    return _compare(console, options, wanted, spec, root, pair, until)


def _compare(
    console: Console,
    options: CompareOptions,
    wanted: Search,
    spec: EngineSpec,
    root: Path,
    pair: tuple[Setting, Setting],
    until: float,
) -> int:
    from harness.files import write_atomically
    from tuning.cli.opened import opened
    from tuning.cli.sizing import settled
    from tuning.comparison import Comparer
    from tuning.confirm import Rounds

    wanted = settled(console, wanted, spec, root)
    with opened(console, options, wanted, spec, root, planned=2 * options.rounds) as study:
        comparer = Comparer(
            lab=study.lab,
            pair=pair,
            objective=study.objective,
            watch=study.watch,
            make_plan=lambda seed: study.plan(wanted.scenario, seed),
            seed=wanted.seed,
            rounds=Rounds(options.rounds, options.rounds_most),
            until=until,
            budget_s=options.budget_s(),
        )
        found = comparer.run()
    text = found.model_dump_json(indent=1) + "\n"
    write_atomically(root / COMPARISON_FILE, text)
    console.print(f"\n[bold]{escape(found.sentence)}[/]")
    if options.json:
        sys.stdout.write(text)
    if found.ended == "interrupted":
        console.print(f"\nStopped. Nothing is lost; go on with the same words and --study {escape(root.name)} --resume")
    return _exit_code(found)


def _exit_code(found: Comparison) -> int:
    if found.ended == "interrupted":
        return INTERRUPTED
    return {"neither holds": NEITHER, "undecided": BUDGET_ENDED}.get(found.kind, OK)


def _show_plan(
    console: Console, options: CompareOptions, wanted: Search, spec: EngineSpec, pair: tuple[Setting, Setting]
) -> None:
    from tuning.engines import command_of

    for name, setting in zip("AB", pair, strict=True):
        console.print(f"[bold]{name}: {escape(setting.label)}[/]")
        if command := command_of(wanted, spec, setting):
            console.print(escape(shlex.join(command)), soft_wrap=True, highlight=False)
    console.print(
        f"scenario {wanted.scenario.name}; {options.rounds} to {options.rounds_most} rounds of both, "
        f"until the interval of the difference is {options.until} wide"
    )
