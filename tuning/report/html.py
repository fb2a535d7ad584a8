"""The report of a study as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment

from harness.files import write_atomically
from harness.statistics import CONFIDENT_P99_REQUESTS
from harness.store import TrialRecord
from tuning.config import StudyFile
from tuning.objective import Objective, read_objective
from tuning.report import words
from tuning.report.command import one_flag_a_line
from tuning.report.conditions import conditions, method
from tuning.report.costs import NOTE, cost_rows
from tuning.report.data import StudyResult, study_result
from tuning.report.detail import groups, in_words
from tuning.report.page import plotly_js, templates
from tuning.report.played import played, requests, watched
from tuning.report.plots import all_plots
from tuning.report.rows import STRESS, leader
from tuning.report.table import against_baseline, candidate_heads, standing
from tuning.report.trade_offs import front_cells, front_heads
from tuning.verdict import Verdict

REPORT_FILE = "report.html"
TEMPLATE = "report.html.j2"


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
        verdict=verdict,
        command=one_flag_a_line(verdict.launch_command) if verdict.launch_command else None,
        sections=all_plots(result, settings, watched(root, settings), requests=requests(root, leads)),
        metric=read_objective(verdict.objective),
        candidate_head=candidate_heads(verdict)[1],
        scale=max((c.value_high or c.value for c in verdict.candidates), default=0.0) or 1.0,
        stress=[row for row in result.trials if row.purpose == STRESS],
        cost_rows=cost_rows(result.costs),
        cost_note=NOTE,
        few_requests=CONFIDENT_P99_REQUESTS,
        few_requests_note=words.FEW_REQUESTS_NOTE,
        conditions=conditions(result, study.search),
        method=method(study.search),
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
    pages.globals |= {"front_heads": front_heads, "front_cells": front_cells}
    return pages
