"""An analysis as one HTML page that needs nothing but itself."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from harness.files import write_atomically
from scenarios.analysis import Analysis, Answer
from tuning.report import words
from tuning.report.analysis_plots import all_plots
from tuning.report.analysis_words import curve_rows, facts, gb
from tuning.report.figure import script_json
from tuning.report.html import ADDRESS

TEMPLATE = "analysis.html.j2"


def write_analysis(path: Path, analysis: Analysis) -> None:
    """Write the page of `analysis` to `path`; raise StoreError when it cannot be written."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"share": words.share, "count": words.count, "gb": gb, "script_json": script_json}
    text = templates.get_template(TEMPLATE).render(
        analysis=analysis,
        cache=analysis.cache,
        helps=analysis.verdict.answer is Answer.HELPS,
        facts=list(facts(analysis)),
        rows=curve_rows(analysis, analysis.cache) if analysis.cache else [],
        plots=all_plots(analysis),
        # Without the addresses of map services and projects in it: the page asks nobody for anything.
        plotly_js=Markup(ADDRESS.sub("", get_plotlyjs())),  # noqa: S704 - our own dependency, not data
        version=metadata.version("hicache-tune"),
    )
    write_atomically(path, text)
