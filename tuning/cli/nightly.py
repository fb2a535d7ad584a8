"""`hicache-tune nightly`: one night of a nightly job."""

from __future__ import annotations

import sys
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
    write_units: Annotated[
        Path | None,
        Parameter(
            help="Write units that start the job (systemd, Kubernetes, GitHub Actions) to this folder; launch nothing."
        ),
    ] = None,
    json: Annotated[bool, Parameter(negative="", help="Print the night as JSON on stdout.")] = False,
) -> int:
    """Measure what runs in production and compare it with the last good night; propose what is better, apply nothing.

    Exit code 3 is a regression. Runs once: a timer starts it each night (see --write-units).
    """
    from dashboards import unit_files
    from tuning.nightly.config import read_config
    from tuning.nightly.plan import show_plan
    from tuning.nightly.run import accept as accept_latest
    from tuning.nightly.run import run_night

    console, job = Console(stderr=True), read_config(config)
    if write_units is not None:
        for path in unit_files.write_units(write_units, config=config, python=sys.executable, results=job.results):
            console.print(f"wrote {path}", soft_wrap=True, highlight=False)
        return 0
    if accept:
        return accept_latest(job, console)
    if dry_run:
        return show_plan(job, console)
    return run_night(job, console, json=json)
