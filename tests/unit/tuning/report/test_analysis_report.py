"""An analysis in the terminal and as a page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from scenarios.analysis import Analysis, HostPool, Machine, analyse
from tests.support.analysis import load_of
from tuning.report.analysis_html import write_analysis
from tuning.report.analysis_plots import all_plots
from tuning.report.analysis_table import print_analysis
from tuning.report.analysis_words import bar, curve_rows

ROUNDS = [[1, user * 10 + 2, user * 10 + 3] for _ in range(30) for user in range(5)]
ATTACK = "</script><b>[red]x"
MACHINE = Machine(
    device_tokens=50,
    host_pools=(HostPool("--hicache-size 2", 200),),
    kv_bytes_per_token=10_000_000,
    prefill_tokens_per_s=50.0,
)


def analysed(machine: Machine = MACHINE, source: str = "made") -> Analysis:
    """Analyse five users that take turns."""
    return analyse(replace(load_of(ROUNDS), source=source), machine)


def unknown() -> Analysis:
    """Analyse a load of which only lengths are known."""
    return analyse(replace(load_of(ROUNDS), unknown="nothing is known"), Machine())


def printed(analysis: Analysis, width: int = 80) -> str:
    """Return what the terminal shows."""
    out = StringIO()
    print_analysis(analysis, Console(file=out, width=width, color_system=None))
    return out.getvalue()


def written(analysis: Analysis, folder: Path) -> str:
    """Return the page."""
    path = folder / "analysis.html"
    write_analysis(path, analysis)
    return path.read_text(encoding="utf-8")


def test_the_terminal_begins_with_the_verdict_and_fits_80_columns() -> None:
    """Then figures, curve and pools; only the verdict, which is for copying, is one long line."""
    first, *rest = printed(analysed()).splitlines()
    assert first.startswith("HiCache is expected to help: --hicache-size 2 (2 GB a rank) raises the hit rate from 33%")
    assert max(map(len, rest)) <= 80
    text = "\n".join(rest)
    assert re.search(r"200 +2\.0 +97\.6% +█+.* --hicache-size 2", text)
    assert re.search(r"--hicache-size 2 +200 +2 +33% +6\d%", text)
    assert "device pool" in text


def test_what_is_unknown_is_not_shown_as_zero() -> None:
    """No curve, no pools, no sharing."""
    text = printed(unknown())
    assert "cannot be told" in text
    assert "Hit rate" not in text
    assert "seen before" not in text


def test_without_bytes_there_are_no_gb() -> None:
    """The column is left out of the curve."""
    text = printed(analysed(Machine(device_tokens=50)))
    assert "--hicache-ratio 4" in text
    assert "prefill s" in text
    curve, _, pools = text.partition("Host pools")
    assert "GB" not in curve
    assert re.search(r"--hicache-ratio 2 +100 +- ", pools)


def test_rows_of_the_curve_rise_and_name_every_mark() -> None:
    """Sizes between the marks are rounded; marks are exact."""
    analysis = analysed()
    assert analysis.cache is not None
    rows = curve_rows(analysis, analysis.cache)
    assert [row.tokens for row in rows] == sorted({row.tokens for row in rows})
    assert [row.hit_rate for row in rows] == sorted(row.hit_rate for row in rows)
    marks = {mark: row.tokens for row in rows for mark in row.marks}
    assert marks["device pool"] == 50
    assert marks["--hicache-size 2"] == 200
    assert {"knee", "as good as endless"} <= set(marks)


@pytest.mark.parametrize(("value", "drawn"), [(0, ""), (0.5, "██"), (1, "████"), (0.28, "█▏"), (2, "████"), (-1, "")])
def test_bars_are_drawn_to_an_eighth(value: float, drawn: str) -> None:
    """Of four characters."""
    assert bar(value, 4) == drawn


def test_the_page_is_whole_and_asks_nobody(tmp_path: Path) -> None:
    """Verdict, tables and six plots; no address that a browser could open."""
    text = written(analysed(), tmp_path)
    body, _, _ = text.partition("<script>/**")
    assert "<h1>HiCache is expected to help: " in body
    assert len(re.findall(r'<div class="plot"></div>', body)) == 6
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    assert "src=" not in body


def test_a_source_is_text_and_never_markup(tmp_path: Path) -> None:
    """On the page and in the terminal; plots stay JSON."""
    analysis = analysed(replace(MACHINE, host_pools=(HostPool(ATTACK, 200),)), source=ATTACK)
    text = written(analysis, tmp_path)
    assert ATTACK not in text
    assert ATTACK in printed(analysis)
    for plot in all_plots(analysis):
        assert "<b>" not in json.dumps(json.loads(plot.figure_json or "{}")["data"])


def test_the_page_says_why_a_plot_is_missing(tmp_path: Path) -> None:
    """Without blocks there are arrivals alone; without a device no pools; without reuse no curve."""
    assert "neither block ids nor text" in written(unknown(), tmp_path)
    missing = [plot.title for plot in all_plots(analysed(Machine())) if plot.missing]
    assert missing == ["Where prompts would come from"]
    nothing_shared = analyse(load_of([[n] for n in range(9)]), MACHINE)
    missing = [plot.title for plot in all_plots(nothing_shared) if plot.missing]
    assert missing == ["Hit rate by cache size", "Time until reuse", "Reuse distance"]
    written(nothing_shared, tmp_path)
