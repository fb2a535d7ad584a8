"""The files of a report beside its page: for programs, spreadsheets and texts."""

from __future__ import annotations

import enum
from pathlib import Path

from harness.files import write_atomically
from tuning.config import Search
from tuning.report.data import StudyResult
from tuning.report.html import REPORT_FILE
from tuning.report.markdown import markdown
from tuning.report.trials_csv import trials_csv


class Form(enum.StrEnum):
    """The forms that a report has."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"
    CSV = "csv"


FILES = {
    Form.HTML: REPORT_FILE,
    Form.MARKDOWN: "report.md",
    Form.JSON: "result.json",
    Form.CSV: "trials.csv",
}
"""Where each form lies in the folder of its study."""


def write_files(root: Path, result: StudyResult, search: Search) -> None:
    """Write every form but the page into the study's `root`; raise StoreError when one cannot be written."""
    write_atomically(root / FILES[Form.JSON], result.model_dump_json(indent=1) + "\n")
    write_atomically(root / FILES[Form.MARKDOWN], markdown(result, search))
    write_atomically(root / FILES[Form.CSV], trials_csv(result.trials))
