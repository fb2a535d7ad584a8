"""What every page is made with: the templates beside this file, and plotly.js inside the page."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tuning.report.figure import script_json

ADDRESS = re.compile(r"https?://(?!www\.w3\.org/)")
"""An address that a browser could open; those of the W3C are names of XML dialects."""


def templates() -> Environment:
    """Open the templates; what a page writes with comes on top, as filters and globals."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["script_json"] = script_json
    return found


def plotly_js() -> Markup:
    """Return plotly.js without the addresses of map services and projects in it: the page asks nobody for anything."""
    return Markup(ADDRESS.sub("", get_plotlyjs()))  # noqa: S704 - our own dependency, not data
