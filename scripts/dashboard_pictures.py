"""Pictures of what the dashboards show, for docs/: the data of each panel, drawn with plotly.

They are not screenshots of Grafana. Prometheus scrapes a small search on the CPU engine, as in
tests/live/test_dashboards.py; every panel's queries are run, and their answers drawn where the panel would stand.
Run as `python -m scripts.dashboard_pictures`; it needs Prometheus, the CPU engine, and chromium for the PNGs.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.queries import PanelQuery, panels, queries
from tests.support.monitored import Monitored, boards, searched
from tests.support.panel_sources import source_of
from tests.support.prometheus import Series

DOCS = Path(__file__).parents[1] / "docs"
COLUMN_PX, ROW_PX, GAP_PX = 58, 34, 6
STEP_S = 1.0
TRIALS = 4
STYLE = """
body { margin: 0; background: #111217; color: #ccccdc; font: 13px sans-serif; width: 1400px; position: relative }
.panel { position: absolute; background: #181b1f; border: 1px solid #2c3035; box-sizing: border-box; overflow: hidden }
.panel h2 { font-size: 12px; margin: 6px 8px 0; font-weight: 600 } .row { font-weight: 700; padding: 8px }
.value { font-size: 30px; text-align: center; padding-top: 14px } small { color: #8e8e9b; font-weight: 400 }
table { border-collapse: collapse; margin: 4px 8px; font-size: 11px }
td, th { padding: 1px 12px 1px 0; text-align: left }
"""


def main() -> None:
    """Draw every dashboard into docs/."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("chromium is missing; install it to draw the pictures")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        searched(Path(folder), trials=TRIALS) as monitored,
    ):
        for name, board in boards().items():
            page = Path(folder) / f"{name}.html"
            height = _write_page(page, name, board, monitored)
            _photograph(chromium, page, DOCS / f"dashboard-{name}.png", height)


def _photograph(chromium: str, page: Path, picture: Path, height: int) -> None:
    argv = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={picture}"]
    subprocess.run([*argv, f"--window-size=1400,{height}", page.as_uri()], check=True, capture_output=True)


def _write_page(page: Path, name: str, board: Mapping[str, Any], monitored: Monitored) -> int:
    """Write a dashboard as HTML and return its height in pixels."""
    found = list(queries(board))
    parts, bottom = [], 0
    for panel in panels(board):
        at = panel["gridPos"]
        bottom = max(bottom, at["y"] + at["h"])
        place = (
            f"left:{at['x'] * COLUMN_PX}px;top:{at['y'] * ROW_PX}px;"
            f"width:{at['w'] * COLUMN_PX - GAP_PX}px;height:{at['h'] * ROW_PX - GAP_PX}px"
        )
        if panel["type"] == "row":
            parts.append(f'<div class="row" style="position:absolute;{place}">{escape(panel["title"])}</div>')
            continue
        own = [query for query in found if query.panel_id == panel["id"]]
        parts.append(f'<div class="panel" style="{place}">{_body(name, panel, own, monitored)}</div>')
    script = f"<script>{_plotly_js()}</script>"
    text = f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>{script}<body>{"".join(parts)}'
    page.write_text(text, encoding="utf-8")
    return bottom * ROW_PX


def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _body(name: str, panel: Mapping[str, Any], own: list[PanelQuery], monitored: Monitored) -> str:
    answers, stands_in = [], False
    for query, target in zip(own, panel["targets"], strict=True):
        source = source_of(name, query)
        stands_in = stands_in or source is not None
        series = monitored.data(query, **(source.variables if source else {}))
        answers.append((target.get("legendFormat", ""), series))
    mark = " <small>(stand-in data)</small>" if stands_in else ""
    head = f"<h2>{escape(panel['title'])}{mark}</h2>"
    unit = panel["fieldConfig"]["defaults"].get("unit", "none")
    if panel["type"] == "table":
        return head + _table(panel, answers)
    if panel["type"] == "stat":
        return head + _number(panel, answers, unit)
    return head + _lines(panel, answers, unit)


Answers = list[tuple[str, list[Series]]]


def _table(panel: Mapping[str, Any], answers: Answers) -> str:
    columns = panel["transformations"][0]["options"]["include"]["names"]
    # A table is of one instant: of the last at which there was something, so that the current setting is one.
    times = sorted({t for _, found in answers for series in found for t, _ in series.values})
    instant = times[-1] if times else 0.0
    shown = [s.labels for _, found in answers for s in found if any(t == instant for t, _ in s.values)]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_public(row.get(c, '')))}</td>" for c in columns) + "</tr>" for row in shown
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _public(text: str) -> str:
    """Leave out whose home folder it was."""
    return text.replace(str(Path.home()), "~")


def _number(panel: Mapping[str, Any], answers: Answers, unit: str) -> str:
    values = [series.values[-1][1] for _, found in answers for series in found]
    words = {}
    for mapping in panel["fieldConfig"]["defaults"].get("mappings", []):
        words = {float(value): each["text"] for value, each in mapping["options"].items()}
    text = "no data" if not values else words.get(values[-1]) or _written(values[-1], unit)
    return f'<div class="value">{escape(text)}</div>'


def _written(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit != "s":
        return f"{value:,.0f}"
    if value < 120:
        return f"{value:.2f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 86400:.1f} d"


def _lines(panel: Mapping[str, Any], answers: Answers, unit: str) -> str:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    shape = "hv" if custom.get("lineInterpolation") == "stepAfter" else "linear"
    figure = go.Figure()
    for legend, found in answers:
        for series in found:
            points = list(_with_gaps(series))
            figure.add_scatter(
                x=[datetime.fromtimestamp(t, UTC) for t, _ in points],
                y=[value for _, value in points],
                name=_named(legend, series),
                line={"shape": shape, "width": 1.5},
                stackgroup="all" if stacked else None,
                mode="lines",
            )
    at = panel["gridPos"]
    figure.update_layout(
        template="plotly_dark",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        width=at["w"] * COLUMN_PX - GAP_PX - 4,
        height=at["h"] * ROW_PX - GAP_PX - 30,
        margin={"l": 50, "r": 10, "t": 6, "b": 24},
        font={"size": 10},
        showlegend=True,
        legend={"font": {"size": 9}},
        yaxis={"tickformat": ".1~%" if unit == "percentunit" else None, "title": {"text": unit, "font": {"size": 9}}},
    )
    if panel["fieldConfig"]["defaults"].get("min") == 0:
        figure.update_yaxes(rangemode="tozero")
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"staticPlot": True}))


def _with_gaps(series: Series) -> Iterator[tuple[float, float | None]]:
    """Yield the values, and None where there were none, so that no line is drawn across."""
    before_s = series.values[0][0]
    for at_s, value in series.values:
        if at_s - before_s > STEP_S:
            yield before_s + STEP_S, None
        yield at_s, value
        before_s = at_s


def _named(legend: str, series: Series) -> str:
    for label, value in series.labels.items():
        legend = legend.replace(f"{{{{{label}}}}}", value)
    return legend


if __name__ == "__main__":
    main()
