"""The report of a study as one HTML page that needs nothing but itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment

from harness.files import write_atomically
from harness.statistics import CONFIDENT_P99_REQUESTS
from harness.store import TrialRecord
from tuning.config import StudyFile
from tuning.objective import Objective
from tuning.report import words
from tuning.report.costs import NOTE, cost_rows
from tuning.report.data import StudyResult, leader, study_result
from tuning.report.detail import groups, in_words
from tuning.report.page import plotly_js, templates
from tuning.report.played import played, requests, samples
from tuning.report.plots import all_plots
from tuning.report.table import against_baseline, standing
from tuning.verdict import NEGLIGIBLE, Verdict

REPORT_FILE = "report.html"
TEMPLATE = "report.html.j2"
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=")


def write_report(
    root: Path,
    study: StudyFile,
    records: Sequence[TrialRecord],
    verdict: Verdict,
    objective: Objective,
    *,
    answer: StudyResult | None = None,
) -> Path:
    """Write report.html of the study in `root` and return its path; raise StoreError when it cannot be written.

    `answer` is what `study_result` gave, where it is known already: to gather it takes as long as the page.
    """
    result = answer or study_result(root, study, records, verdict, objective)
    leading = leader(records, objective, verdict)
    settings = played(root, records, leading, confirmed=verdict.winner is not None)
    leads = next((s.records for s in settings if s.leads), ())
    page = _templates().get_template(TEMPLATE)
    text = page.render(
        result=result,
        search=study.search,
        verdict=verdict,
        command=_one_flag_a_line(verdict.launch_command) if verdict.launch_command else None,
        plots=all_plots(settings, result.trials, samples=samples(root, leads), requests=requests(root, leads)),
        scale_s=max((c.p99_high_s or c.p99_s for c in verdict.candidates), default=1.0),
        cost_rows=cost_rows(result.costs),
        cost_note=NOTE,
        few_requests=CONFIDENT_P99_REQUESTS,
        few_requests_note=words.FEW_REQUESTS_NOTE,
        negligible=NEGLIGIBLE,
        plotly_js=plotly_js(),
    )
    path = root / REPORT_FILE
    write_atomically(path, text)
    return path


def _templates() -> Environment:
    pages = templates()
    for write in (words.seconds, words.span, words.share, words.count, words.gib, words.duration, in_words):
        pages.filters[write.__name__] = write
    pages.globals |= {"against_baseline": against_baseline, "standing": standing, "groups": groups}
    return pages


def _one_flag_a_line(command: str) -> str:
    """Break a shell command before each flag and variable, so that it can be read and still be pasted as it is."""
    lines: list[list[str]] = [[]]
    after_variable = False
    for word in shlex.split(command):
        is_variable = VARIABLE.match(word) is not None
        if is_variable or after_variable or word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
        after_variable = is_variable
    return " \\\n  ".join(shlex.join(line) for line in lines if line)
