"""`hicache-tune search`: the main job."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from harness.engine.spec import EngineSpec
from tuning.cli.options import SearchOptions
from tuning.config import Effort, Search

if TYPE_CHECKING:
    from tuning.space import Bounds
    from tuning.verdict import Verdict

OK, NONE_FEASIBLE, BUDGET_ENDED, INTERRUPTED = 0, 2, 124, 130
SHOWN_PROPOSALS = 5


def search(options: SearchOptions | None = None) -> int:
    """Search the settings of a live SGLang server for the best objective, by default TTFT P99, and prove the winner."""
    options = options or SearchOptions()
    console = Console(stderr=True)
    wanted, effort = options.search(), options.effort()
    from tuning.samplers import check_sampler

    check_sampler(effort.sampler)
    if wanted.only_measures:
        effort = effort.model_copy(update={"trials": 1, "confirm_top": 1})
    from tuning.cli.opened import open_devices
    from tuning.engines import engine_spec
    from tuning.room import bounds_of

    spec = engine_spec(wanted, effort)
    bounds = bounds_of(spec, open_devices(spec))
    wanted = wanted if wanted.only_measures else _bounded(console, wanted, bounds)
    name = options.study_name(wanted)
    root = (options.results / name).absolute()
    if options.dry_run:
        _show_plan(console, wanted, effort, spec, root)
        return OK
    return _search(console, options, wanted, effort, spec, bounds, root)


def _bounded(console: Console, wanted: Search, bounds: Bounds) -> Search:
    """Leave out of the space what preflight knows to be impossible on this machine, and say so."""
    from tuning.space import cut

    found = cut(wanted.space, bounds)
    for note in found.notes:
        console.print(f"[yellow]note:[/] {escape(note)}")
    return wanted.model_copy(update={"space": found.space})


def _search(
    console: Console,
    options: SearchOptions,
    wanted: Search,
    effort: Effort,
    spec: EngineSpec,
    bounds: Bounds,
    root: Path,
) -> int:
    from tuning.cli.answer import print_answer
    from tuning.cli.beginning import about_import, beginning
    from tuning.cli.opened import opened
    from tuning.cli.sizing import settled
    from tuning.search import Searcher
    from tuning.stress import stressed
    from tuning.study import Study, baselines_of

    wanted = settled(console, wanted, spec, root)
    about = about_import(options, root)
    with opened(console, options, wanted, spec, root, planned=effort.trials, about=about) as study:
        begins = beginning(console, options, study, effort)
        searcher = Searcher(
            lab=study.lab,
            study=Study(
                root / "study.db",
                samplers=begins.samplers,
                objective=study.objective,
                baselines=baselines_of(wanted),
                first=begins.first,
                refusal=lambda setting: bounds.refusal(setting, study.lab.learned),
            ),
            objective=study.objective,
            effort=effort,
            watch=study.watch,
            make_plan=lambda seed: study.plan(wanted.scenario, seed),
            seed=wanted.seed,
            make_stress_plan=lambda seed: study.plan(stressed(wanted.scenario, study.first_plan), seed),
        )
        verdict = searcher.run()
    print_answer(root, study.file, searcher.records, verdict, study.objective, console=console, json=options.json)
    if wanted.restart_hook and searcher.records:
        last = searcher.records[-1].setting.label
        console.print(f"The server at {wanted.url} still runs what was measured last: {escape(last)}")
    return _exit_code(console, verdict, interrupted=study.stop.should_stop(), study=root.name, effort=effort)


def _exit_code(console: Console, verdict: Verdict, *, interrupted: bool, study: str, effort: Effort) -> int:
    if interrupted:
        console.print(f"\nStopped. Nothing is lost; go on with the same flags and --study {escape(study)} --resume")
        return INTERRUPTED
    if verdict.kind == "none feasible":
        return NONE_FEASIBLE
    no_answer = effort.confirm_rounds > 0 or verdict.launch_command is None
    return BUDGET_ENDED if verdict.kind == "unconfirmed" and no_answer else OK


def _show_plan(console: Console, wanted: Search, effort: Effort, spec: EngineSpec, root: Path) -> None:
    """Print what would be done; proposals after the baselines depend on results, so those shown are only the first."""
    from scenarios import PromptTokenizer, describe, make_plan
    from tuning.cli.beginning import samplers_of
    from tuning.engines import command_of
    from tuning.study import baselines_of, first_proposals

    tokenizer = PromptTokenizer.load(wanted.model)
    baselines = baselines_of(wanted)
    summary = describe(make_plan(wanted.scenario, wanted.seed, tokenizer, wanted.api), tokenizer)
    console.print(f"study {root.name} in {root}")
    console.print(
        f"scenario {wanted.scenario.name}: {summary.requests} requests, "
        f"prompts of {summary.mean_prompt_tokens:.0f} tokens on average"
    )
    further = effort.confirm_rounds_most - effort.confirm_rounds
    more = f", up to {further} more rounds of what is in question" if further > 0 else ""
    stress = ", the winner under more load" if effort.stress else ""
    console.print(
        f"{effort.trials} settings, then {effort.confirm_trials(len(baselines))} trials of confirmation{more}{stress}; "
        f"constraints: {', '.join(wanted.constraints)}"
    )
    beside = f", traded against {', '.join(wanted.pareto)}" if wanted.pareto else ""
    console.print(f"objective: {wanted.objective}{beside}", highlight=False, markup=False)
    for dimension in wanted.space.dimensions:
        console.print(f"  {dimension.name}: {escape(dimension.text)}")
    samplers = samplers_of(wanted, effort, spec, device_bytes=None, expecting=True)
    proposed = min(SHOWN_PROPOSALS, effort.trials - len(baselines))
    settings = [*baselines, *first_proposals(samplers, proposed)]
    for number, setting in enumerate(settings):
        kind = "baseline" if number < len(baselines) else "looks good beforehand; what is measured decides"
        kind = "what the server runs; nothing restarts it" if wanted.only_measures else kind
        console.print(f"\n[bold]{escape(setting.label)}[/] [dim]({kind})[/]")
        if command := command_of(wanted, spec, setting):
            console.print(escape(shlex.join(command)), soft_wrap=True, highlight=False)
