"""An analysis as one HTML page that needs nothing but itself."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from harness.files import write_atomically
from scenarios.analysis import Analysis, Answer
from tuning.report import words
from tuning.report.analysis_plots import all_plots
from tuning.report.analysis_words import curve_rows, facts, gb
from tuning.report.page import plotly_js, templates

TEMPLATE = "analysis.html.j2"


def write_analysis(path: Path, analysis: Analysis) -> None:
    """Write the page of `analysis` to `path`; raise StoreError when it cannot be written."""
    pages = templates()
    pages.filters |= {"share": words.share, "count": words.count, "gb": gb}
    text = pages.get_template(TEMPLATE).render(
        analysis=analysis,
        cache=analysis.cache,
        helps=analysis.verdict.answer is Answer.HELPS,
        facts=list(facts(analysis)),
        rows=curve_rows(analysis, analysis.cache) if analysis.cache else [],
        plots=all_plots(analysis),
        plotly_js=plotly_js(),
        version=metadata.version("hicache-tune"),
    )
    write_atomically(path, text)
