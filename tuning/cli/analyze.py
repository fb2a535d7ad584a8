"""`hicache-tune analyze`: will HiCache help this load? Counted on its prompts, no GPU needed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console

from scenarios.analysis import MAX_BLOCKS, Assumptions
from tuning.cli.machine import MachineOptions

if TYPE_CHECKING:
    from scenarios.analysis import Load
    from scenarios.trace import Trace

LOAD = Group("What is analysed", sort_key=1)
ANSWER = Group("How it is shown", sort_key=3)
AT_LEAST_0, AT_LEAST_1, ABOVE_0 = Number(gte=0), Number(gte=1), Number(gt=0)
SCENARIO_SUFFIXES = (".yaml", ".yml")
ASSUMED = Assumptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How the source is read, and what is assumed where it says nothing."""

    format: Annotated[
        str | None, Parameter(group=LOAD, help="Format of a trace; by default it is recognised by its content.")
    ] = None
    skip_bad: Annotated[
        int, Parameter(group=LOAD, validator=AT_LEAST_0, help="Bad lines to skip; one more ends the reading.")
    ] = 0
    seed: Annotated[
        int, Parameter(group=LOAD, validator=AT_LEAST_0, help="Seed of the sessions, or of their order.")
    ] = 1
    page_size: Annotated[
        int, Parameter(group=LOAD, validator=AT_LEAST_1, help="Tokens of a block, for scenarios and text.")
    ] = 16
    users: Annotated[
        int, Parameter(group=LOAD, validator=AT_LEAST_1, help="Users at a time, for traces without a common clock.")
    ] = ASSUMED.users
    service_s: Annotated[
        float, Parameter(group=LOAD, validator=ABOVE_0, help="Seconds from request to reply, where not recorded.")
    ] = ASSUMED.service_s
    think_s: Annotated[
        float, Parameter(group=LOAD, validator=AT_LEAST_0, help="Seconds between turns, where not recorded.")
    ] = ASSUMED.think_s
    think_limit_s: Annotated[
        float, Parameter(group=LOAD, validator=ABOVE_0, help="Longer recorded pauses are cut to this.")
    ] = ASSUMED.think_limit_s
    max_blocks: Annotated[
        int, Parameter(group=LOAD, validator=AT_LEAST_1, help="Blocks kept in memory; beyond, a sample is taken.")
    ] = MAX_BLOCKS

    def load(self, source: str, model: str | None, device_tokens: int | None) -> Load:
        """Read `source`; raise ScenarioError or TraceError that says what is wrong with it."""
        from scenarios import list_scenarios, load_scenario
        from scenarios.analysis import load_of_scenario

        path = Path(source)
        is_name = len(path.parts) == 1 and not path.suffix and not path.exists()
        if source in list_scenarios() or is_name or source.endswith(SCENARIO_SUFFIXES):
            return load_of_scenario(
                load_scenario(source),
                self.seed,
                page_tokens=self.page_size,
                assumed=self._assumed,
                device_tokens=device_tokens,
                max_blocks=self.max_blocks,
            )
        return self._trace_load(source, model)

    def _trace_load(self, source: str, model: str | None) -> Load:
        from scenarios import PromptTokenizer
        from scenarios.analysis import load_of_trace
        from scenarios.readers import open_trace

        trace = open_trace(source, format=self.format, skip_bad=self.skip_bad)
        return load_of_trace(
            _told_apart(trace),
            assumed=self._assumed,
            page_tokens=self.page_size,
            encode=PromptTokenizer.load(model).ids if model and trace.info.block_tokens is None else None,
            max_blocks=self.max_blocks,
        )

    @property
    def _assumed(self) -> Assumptions:
        return Assumptions(
            users=self.users,
            seed=self.seed,
            service_s=self.service_s,
            think_s=self.think_s,
            think_limit_s=self.think_limit_s,
        )


def analyze(
    source: Annotated[
        str, Parameter(group=LOAD, help="A trace, a chat log, a scenario's YAML file, or a built-in scenario.")
    ],
    /,
    *,
    load: LoadOptions | None = None,
    machine: MachineOptions | None = None,
    json: Annotated[bool, Parameter(group=ANSWER, negative="", help="Print the analysis as JSON on stdout.")] = False,
    html: Annotated[Path | None, Parameter(group=ANSWER, help="Write the analysis as one HTML page.")] = None,
) -> int:
    """Say whether HiCache will help a load, and with which host pool: sharing, working set, hit rate by cache size."""
    from scenarios.analysis import analyse
    from tuning.report.analysis_html import write_analysis
    from tuning.report.analysis_table import print_analysis

    options = machine or MachineOptions()
    judged_for = options.machine()
    read = (load or LoadOptions()).load(source, options.model, judged_for.device_tokens)
    analysis = analyse(read, judged_for)
    console = Console(stderr=True)
    print_analysis(analysis, console)
    if html is not None:
        write_analysis(html, analysis)
        console.print(f"\nReport: {html}", soft_wrap=True, markup=False)
    if json:
        sys.stdout.write(analysis.model_dump_json(indent=1) + "\n")
    return 0


def _told_apart(trace: Trace) -> Trace:
    """Find the sessions of a trace that records none, where its block ids can tell."""
    from scenarios.infer_sessions import infer_sessions
    from scenarios.trace import Scope

    info = trace.info
    can_tell = info.block_tokens is not None and info.scope is Scope.GLOBAL
    return infer_sessions(trace) if can_tell and not info.sessions_recorded else trace
