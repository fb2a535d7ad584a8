"""`hicache-tune report`: draw the verdict and the report of a study again, from its measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from rich.console import Console

from scenarios.errors import ConfigError


def report(
    study: str,
    *,
    results: Path = Path("results"),
    goodput: str | None = None,
    format: Literal["html", "md", "json", "csv"] | None = None,
    json: bool = False,
) -> int:
    """Write report.html, report.md, result.json and trials.csv of a study again, and print its answer.

    Parameters
    ----------
    study
        Name of the study.
    results
        Folder of all studies.
    goodput
        Service level that each request must meet, as `ttft<=500ms, tpot<=50ms, e2e<=20s`: shows how many do.
    format
        Print the report on stdout too, in one of its forms: a page, Markdown, JSON, or a CSV row for each trial.
    json
        Print the result as JSON on stdout, as `--format json` does.
    """
    from harness.metrics import Slo
    from harness.store import read_trials
    from tuning.cli.answer import print_answer
    from tuning.config import read_study
    from tuning.objective import Objective
    from tuning.report import FILES, Form
    from tuning.study import baselines_of
    from tuning.verdict import decide

    if json and format not in (None, "json"):
        raise ConfigError(f"--json and --format {format} would both print on stdout; give one of them")
    slo = Slo.read(goodput) if goodput is not None else None
    root = results / study
    file = read_study(root)
    records = read_trials(root)
    objective = Objective.of(file.search)
    baselines = baselines_of(file.search)
    verdict = decide(records, root, baseline_key=baselines[0].key if baselines else None, objective=objective)
    print_answer(root, file, records, verdict, objective, console=Console(stderr=True), json=json, slo=slo)
    if format is not None and not json:
        sys.stdout.write((root / FILES[Form(format)]).read_text(encoding="utf-8"))
    return 0
