"""`hicache-tune scenario`: what the users do. The commands that read traces are in `tuning.cli.trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from scenarios import PromptTokenizer, Scenario, Session

app = App(name="scenario", help="List, show and check scenarios.")

SHOWN_WORDS = 24
AtLeast1 = Annotated[int, Parameter(validator=Number(gte=1))]
Seed = Annotated[int, Parameter(validator=Number(gte=0))]


@app.command(name="list")
def list_() -> int:
    """List the built-in scenarios."""
    from scenarios import list_scenarios, load_scenario

    table = Table("name", "sessions", "at a time", "what it is", box=None)
    for name in list_scenarios():
        scenario = load_scenario(name)
        table.add_row(name, str(scenario.sessions.counted or "all"), _load(scenario), scenario.description)
    Console().print(table)
    return 0


@app.command
def show(
    name_or_path: str,
    *,
    model: str | None = None,
    seed: Seed = 0,
    device_kv_tokens: AtLeast1 | None = None,
    json: bool = False,
) -> int:
    """Check a scenario and say what it amounts to: requests, prompt lengths, working set.

    Parameters
    ----------
    name_or_path
        A built-in name or a YAML file.
    model
        Model whose tokenizer counts the tokens; by default the CPU engine's tiny one.
    seed
        Seed of the sessions.
    device_kv_tokens
        KV pool of the engine in tokens (its log says `max_total_num_tokens`); for scenarios sized by `working_set`.
    json
        Print the figures as JSON on stdout.
    """
    import json as json_text
    from dataclasses import asdict

    from scenarios import describe, load_scenario, make_plan, sized
    from scenarios.model import Replay
    from scenarios.replay import read_recorded

    scenario, tokenizer = load_scenario(name_or_path), _tokenizer(model)
    if device_kv_tokens is not None:
        scenario = sized(scenario, device_kv_tokens, tokenizer)
    summary = describe(make_plan(scenario, seed, tokenizer), tokenizer)
    if json:
        Console(soft_wrap=True).print_json(json_text.dumps(asdict(summary)))
        return 0
    table = Table(show_header=False, box=None)
    for name, value in asdict(summary).items():
        if value is not None:
            table.add_row(name.replace("_", " "), _figure(value))
    if isinstance(scenario, Replay):
        recorded = read_recorded(scenario.replay, tokenizer)
        table.add_row("recorded sessions", f"{len(recorded.sessions)}, and {recorded.dropped} left out as too long")
    if device_kv_tokens is not None:
        table.add_row("working set, x device KV", f"{summary.working_set_tokens / device_kv_tokens:.2f}")
    Console().print(f"[bold]{escape(scenario.name)}[/]: {escape(scenario.description)}", table)
    return 0


@app.command
def validate(*files: str) -> int:
    """Check scenario files, each with all that it refers to; fail at the first that is wrong.

    Parameters
    ----------
    files
        YAML files, or names of built-in scenarios.
    """
    from scenarios import load_scenario
    from scenarios.errors import ConfigError

    if not files:
        raise ConfigError("scenario validate: no file is given; name one or more")
    for file in files:
        scenario = load_scenario(file)
        Console(soft_wrap=True).print(f"{escape(file)}: good; {escape(scenario.name)}, {_load(scenario)}")
    return 0


@app.command
def sample(
    name_or_path: str,
    *,
    sessions: AtLeast1 = 2,
    model: str | None = None,
    seed: Seed = 0,
    device_kv_tokens: AtLeast1 | None = None,
    full: bool = False,
) -> int:
    """Print what is said in the first counted sessions, role by role.

    Parameters
    ----------
    name_or_path
        A built-in name or a YAML file.
    sessions
        How many sessions are printed.
    model
        Model whose tokenizer counts the tokens; by default the CPU engine's tiny one.
    seed
        Seed of the sessions.
    device_kv_tokens
        KV pool of the engine in tokens; for scenarios sized by `working_set`.
    full
        Print every word, not only the beginning and the end of a message.
    """
    from scenarios import Phase, load_scenario, make_plan, sized

    scenario, tokenizer = load_scenario(name_or_path), _tokenizer(model)
    if device_kv_tokens is not None:
        scenario = sized(scenario, device_kv_tokens, tokenizer)
    plan = make_plan(scenario, seed, tokenizer)
    console = Console(soft_wrap=True, highlight=False)
    for session in [s for s in plan.sessions if s.phase is Phase.COUNTED][:sessions]:
        _print_session(console, session, tokenizer, plan.concurrency is None, full)
    return 0


def _print_session(console: Console, session: Session, tokenizer: PromptTokenizer, is_open: bool, full: bool) -> None:
    arrival = f", arrives at {session.start_s:.1f} s" if is_open else ""
    console.print(f"[bold]{escape(session.session_id)}[/] ({len(session.turns)} turns{arrival})")

    def say(role: str, text: str | None, token_ids: tuple[int, ...] | None, note: str = "") -> None:
        words = (text or "").split(" ") if token_ids is None else [str(i) for i in token_ids]
        tokens = tokenizer.count(text or "") if token_ids is None else len(token_ids)
        if not full and len(words) > SHOWN_WORDS:
            words = [*words[: SHOWN_WORDS // 2], "...", *words[-SHOWN_WORDS // 2 :]]
        console.print(f"  [cyan]{role}[/] [dim]{tokens} tokens{note}[/] {escape(' '.join(words))}")

    if session.system_text is not None or session.system_token_ids is not None:
        say("system", session.system_text, session.system_token_ids)
    for index, turn in enumerate(session.turns):
        due = f", {turn.think_s:g} s later" if turn.at_s is None else f", at {turn.at_s:g} s"
        branch = "" if turn.after is None else f", goes on from {'the beginning' if turn.after < 0 else turn.after}"
        say(f"user {index}", turn.text, turn.token_ids, (due if index else "") + branch)
        left = "" if turn.cancel_after_tokens is None else f", left after {turn.cancel_after_tokens}"
        if turn.reply_text is None and turn.reply_token_ids is None:
            console.print(
                f"  [cyan]assistant[/] [dim]up to {turn.max_output_tokens} tokens of the model's own{left}[/]"
            )
        else:
            say("assistant", turn.reply_text, turn.reply_token_ids, left)


def _figure(value: object) -> str:
    """Write a number for people: four digits of a small one, all whole ones of a large one."""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _load(scenario: Scenario) -> str:
    """Say how many sessions are played at a time, or how they arrive."""
    if scenario.arrivals is not None:
        return f"{scenario.arrivals.mean_per_s:g}/s, {scenario.arrivals.kind}"
    pace = scenario.sessions
    return pace.working_set or (str(pace.concurrency) if pace.concurrency else "as recorded")


def _tokenizer(model: str | None) -> PromptTokenizer:
    from scenarios import PromptTokenizer
    from tuning.engines import default_model

    return PromptTokenizer.load(model or default_model("cpu") or "")
