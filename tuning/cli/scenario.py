"""`hicache-tune scenario`: what the users do."""

from __future__ import annotations

from cyclopts import App
from rich.console import Console
from rich.table import Table

app = App(name="scenario", help="List, show and check scenarios.")


@app.command(name="list")
def list_() -> int:
    """List the built-in scenarios."""
    from scenarios import list_scenarios, load_scenario

    table = Table("name", "sessions", "at a time", "what it is", box=None)
    for name in list_scenarios():
        scenario = load_scenario(name)
        sessions = scenario.sessions
        table.add_row(name, str(sessions.counted), str(sessions.concurrency), scenario.description)
    Console().print(table)
    return 0


@app.command
def show(name_or_path: str, *, model: str | None = None, seed: int = 0, json: bool = False) -> int:
    """Check a scenario and say what it amounts to: requests, prompt lengths, working set.

    Parameters
    ----------
    name_or_path
        A built-in name or a YAML file.
    model
        Model whose tokenizer counts the tokens; by default the CPU engine's tiny one.
    seed
        Seed of the sessions.
    json
        Print the figures as JSON on stdout.
    """
    import json as json_text
    from dataclasses import asdict

    from scenarios import PromptTokenizer, describe, load_scenario, make_plan
    from tuning.engines import default_model

    scenario = load_scenario(name_or_path)
    tokenizer = PromptTokenizer.load(model or default_model("cpu") or "")
    summary = describe(make_plan(scenario, seed, tokenizer), tokenizer)
    if json:
        Console(soft_wrap=True).print_json(json_text.dumps(asdict(summary)))
        return 0
    table = Table(show_header=False, box=None)
    for name, value in asdict(summary).items():
        table.add_row(name.replace("_", " "), f"{value:,.4g}" if isinstance(value, float) else str(value))
    Console().print(f"[bold]{scenario.name}[/]: {scenario.description}", table)
    return 0
