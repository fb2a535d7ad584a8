"""The answer of a study, for people on stderr and for programs on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from harness.metrics import Slo
from harness.store import TrialRecord
from tuning.cli.front import front_table
from tuning.config import StudyFile
from tuning.objective import Objective
from tuning.report import (
    candidates_table,
    costs_table,
    details_table,
    in_words,
    study_result,
    trials_table,
    write_files,
    write_report,
)
from tuning.verdict import Verdict


def print_answer(
    root: Path,
    study: StudyFile,
    records: Sequence[TrialRecord],
    verdict: Verdict,
    objective: Objective,
    *,
    console: Console,
    json: bool,
    slo: Slo | None = None,
) -> None:
    """Write the report in all of its forms, and print the answer; with a service level, the goodput under it too."""
    answer = study_result(root, study, records, verdict, objective, slo=slo)
    write_files(root, answer, study.search)
    page = write_report(root, study, records, verdict, objective, answer=answer)
    console.print(trials_table(records, objective, verdict, width=console.width))
    if verdict.candidates:
        console.print(candidates_table(verdict))
    if any(detail.metrics for detail in answer.details):
        console.print(details_table(answer.details))
    if any(cost.reload for cost in answer.costs):
        console.print(costs_table(answer.costs))
    for detail in answer.details:
        if detail.goodput:
            console.print(f"{detail.role}: {escape(in_words(detail.goodput))}", highlight=False)
    if verdict.front:
        console.print(front_table(verdict))
    console.print(f"\n[bold]{escape(verdict.sentence)}[/]")
    if verdict.rule:
        console.print(f"Recommended by {escape(verdict.rule)}.", highlight=False)
    if verdict.launch_command:
        console.print("\nLaunch it with:")
        console.print(escape(verdict.launch_command), soft_wrap=True, highlight=False)
    console.print(f"\nReport: {page}")
    if json:
        sys.stdout.write(answer.model_dump_json(indent=1) + "\n")
