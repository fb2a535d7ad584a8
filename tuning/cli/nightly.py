"""`hicache-tune nightly`: one night of a nightly job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console


def nightly(
    *,
    config: Annotated[Path, Parameter(help="The job's file.")] = Path("nightly.toml"),
    accept: Annotated[
        bool, Parameter(negative="", help="Take the latest measured night as good, as after a wanted upgrade.")
    ] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Print what would be measured; launch nothing.")] = False,
    json: Annotated[bool, Parameter(negative="", help="Print the night as JSON on stdout.")] = False,
) -> int:
    """Measure what runs in production and compare it with the last good night; propose what is better, apply nothing.

    Exit code 3 is a regression. Runs once: a timer starts it each night (see `dashboards/units`).
    """
    from tuning.nightly.config import read_config
    from tuning.nightly.plan import show_plan
    from tuning.nightly.run import accept as accept_latest
    from tuning.nightly.run import run_night

    console, job = Console(stderr=True), read_config(config)
    if accept:
        return accept_latest(job, console)
    if dry_run:
        return show_plan(job, console)
    return run_night(job, console, json=json)
