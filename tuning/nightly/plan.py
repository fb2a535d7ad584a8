"""What a night would measure, for `--dry-run`."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tuning.nightly.config import NightlyConfig
from tuning.nightly.night import Tonight


def show_plan(config: NightlyConfig, console: Console) -> int:
    """Print what would be measured and how production is launched; the console is stderr."""
    tonight = Tonight(config, console, Path(config.results / f"{config.job}-plan").absolute())
    conditions = tonight.plan(may_launch=False)
    console.print(
        f"job {config.job}: {escape(conditions.production.label)} on seeds {', '.join(map(str, config.seeds))}, "
        f"scenario {conditions.search.scenario.name}; slower by more than {config.threshold:.0%} is a regression"
    )
    if config.mode == "search":
        console.print(f"then {config.search.trials} settings are searched")
    if command := tonight.command():
        console.print(escape(shlex.join(command)), soft_wrap=True, highlight=False)
    return 0
