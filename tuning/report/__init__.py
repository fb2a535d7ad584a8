"""The answer of a study: tables for a terminal, data for programs, and a page for people."""

from tuning.report.costs import costs_table
from tuning.report.data import StudyResult, study_result
from tuning.report.detail import in_words
from tuning.report.files import FILES, Form, write_files
from tuning.report.html import write_report
from tuning.report.rows import TrialRow
from tuning.report.table import candidates_table, details_table, trials_table

__all__ = [
    "FILES",
    "Form",
    "StudyResult",
    "TrialRow",
    "candidates_table",
    "costs_table",
    "details_table",
    "in_words",
    "study_result",
    "trials_table",
    "write_files",
    "write_report",
]
