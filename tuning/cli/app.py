"""The commands and the exit codes.

0 ok; 1 usage, configuration or engine; 2 no feasible setting; 3 regression (nightly); 124 the budget ended before a
verdict; 130 interrupted, resumable.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import metadata

from cyclopts import App, CycloptsError
from rich.console import Console
from rich.markup import escape

from harness.engine.old_names import translate_command
from scenarios.errors import HicacheTuneError
from tuning.cli import (
    analyze,
    compare,
    dashboard,
    diagnose,
    engine,
    limit,
    nightly,
    report,
    scenario,
    search,
    trace,
    verify,
)
from tuning.cli.configuration import SOURCES, check_sources

WITH_HICACHE_FLAGS = ("search", "find-limit")
"""The commands that take a launch command's flags for HiCache, also as articles write them."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
ERROR = 1
INTERRUPTED = 130

app: App = App(
    name="hicache-tune",
    help="Find the HiCache and memory settings of a live SGLang server with the lowest P99 time to first token.",
    version=lambda: metadata.version("hicache-tune"),
    config=[lambda *_: check_sources(app), *SOURCES],
)
app.command(search.search, name="search")
app.command(limit.find_limit, name="find-limit")
app.command(compare.compare, name="compare")
app.command(verify.verify, name="verify")
app.command(diagnose.diagnose, name="diagnose")
app.command(nightly.nightly, name="nightly")
app.command(report.report, name="report")
app.command(analyze.analyze, name="analyze")
app.command(scenario.app)
scenario.app.command(trace.convert)
scenario.app.command(trace.anonymise)
app.command(engine.app)
app.command(dashboard.app)


def main() -> None:
    """Run the command of this process's arguments and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; what a user can act on is said in one sentence, without a traceback."""
    console = Console(stderr=True, soft_wrap=True)
    try:
        if arguments and arguments[0] in WITH_HICACHE_FLAGS:
            translated = translate_command(arguments)
            arguments = translated.words
            for warning in translated.warnings:
                console.print(f"[yellow]note:[/] {escape(warning)}")
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except (CycloptsError, HicacheTuneError) as problem:
        console.print(f"[bold red]hicache-tune:[/] {escape(str(problem).strip())}")
        return ERROR
    except OSError as problem:
        if problem.errno not in DISK_FULL:
            raise
        where = f"{problem.filename}: " if problem.filename else ""
        console.print(
            f"[bold red]hicache-tune:[/] {escape(where)}the disk is full; free space or choose another --results. "
            "Every trial that had ended is kept: a study goes on with --resume"
        )
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    return int(code or 0)
