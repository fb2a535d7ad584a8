"""An analysis in the terminal: the verdict first, then the figures, the curve and the host pools."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from scenarios.analysis import Analysis, Answer, CacheUse
from tuning.report.analysis_words import bar, curve_rows, facts, gb
from tuning.report.words import count, share

BAR_WIDTH = 24
COLOURS = {Answer.HELPS: "green", Answer.DOES_NOT_HELP: "red", Answer.DEPENDS: "yellow", Answer.UNKNOWN: "yellow"}


def print_analysis(analysis: Analysis, console: Console) -> None:
    """Print all of it."""
    console.print(f"[bold {COLOURS[analysis.verdict.answer]}]{escape(analysis.sentence)}[/]", soft_wrap=True)
    console.print(f"\n[bold]{escape(analysis.source)}[/]")
    console.print(_facts(analysis))
    if analysis.cache is not None and analysis.cache.reuse is not None:
        console.print("\n[bold]Hit rate of an LRU cache by its size[/]")
        console.print(_curve(analysis, analysis.cache))
    if analysis.cache is not None and analysis.cache.reuse is not None and analysis.cache.marks:
        console.print("\n[bold]Host pools[/]")
        console.print(_pools(analysis.cache))
    for note in analysis.notes:
        console.print(Padding(escape(note), (0, 0, 0, 2), expand=False), style="dim", highlight=False)


def _facts(analysis: Analysis) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, figure in facts(analysis):
        table.add_row(name, figure)
    return table


def _curve(analysis: Analysis, cache: CacheUse) -> Table:
    has_gb = analysis.machine.kv_bytes_per_token is not None
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("tokens", justify="right", no_wrap=True)
    if has_gb:
        table.add_column("GB a rank", justify="right", no_wrap=True)
    table.add_column("hits", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=BAR_WIDTH)
    table.add_column("", no_wrap=True)
    for row in curve_rows(analysis, cache):
        sizes = [count(row.tokens), *([gb(row.gb)] if has_gb else [])]
        marks = escape(", ".join(row.marks))
        table.add_row(*sizes, f"{row.hit_rate:.1%}", bar(row.hit_rate, BAR_WIDTH), marks, style="bold" if marks else "")
    return table


def _pools(cache: CacheUse) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("host pool", no_wrap=True)
    headings = (
        "tokens",
        "GB a\nrank",
        "device\nhits",
        "host\nhits",
        "work\nsaved",
        "prefill s\nsaved",
        "peak re-\nload GB/s",
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for mark in cache.marks:
        device = share(mark.device_hit_rate)
        if not mark.pool:
            table.add_row("none", "-", "-", device, "-", "-", "-", "-")
            continue
        seconds, peak = mark.saved_prefill_s, mark.peak_reload_gb_per_s
        table.add_row(
            escape(mark.pool),
            count(mark.host_tokens),
            "-" if mark.host_gb is None else f"{mark.host_gb:,.0f}",
            device,
            share(mark.host_hit_rate),
            share(mark.saved_work),
            "-" if seconds is None else f"{seconds:,.0f}",
            "-" if peak is None else f"{peak:.1f}",
        )
    return table
