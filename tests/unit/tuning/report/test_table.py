"""The tables for a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from harness.engine.setting import Setting
from tests.support.study_data import ATTACK, Made
from tuning.report import candidates_table, trials_table


def shown(table: Table, width: int, *, terminal: bool = False) -> str:
    """Render `table` as a console `width` columns wide would."""
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system="standard" if terminal else None
    )
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def flat(text: str) -> str:
    """Drop the line breaks that folding made."""
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100, 170])
def test_it_fits(confirmed: Made, width: int) -> None:
    """No line is wider than the terminal, and no cell is cut off."""
    table = trials_table(confirmed.records, confirmed.objective, confirmed.verdict, width=width)
    text = shown(table, width)
    assert max(map(len, text.splitlines())) <= width
    for word in ("winner", "0.856*", "[0.677, 0.887]", "bottleneck", "sustainable:", "unanswered", "host_memory"):
        assert word in text


def test_a_hundred_columns_show_every_group_of_figures(confirmed: Made) -> None:
    """Hits, headroom, errors and duration are there at 100 columns; reloads come with more room."""
    at = {
        width: flat(shown(trials_table(confirmed.records, confirmed.objective, confirmed.verdict, width=width), width))
        for width in (100, 170)
    }
    for word in ("hit dev", "GiB free", "errors", "9.0/-", "29%", "39%", "76 s", "[0.677, 0.887]"):
        assert word in at[100]
    assert "70,000" not in at[100]
    assert "70,000" in at[170]


def test_plain_without_a_terminal(confirmed: Made) -> None:
    """A file or a pipe gets no escape codes; a terminal does."""
    table = trials_table(confirmed.records, confirmed.objective, confirmed.verdict)
    assert "\x1b" not in shown(table, 100)
    assert "\x1b" in shown(table, 100, terminal=True)


def test_infeasible_trials_stand_below_with_their_reason(confirmed: Made) -> None:
    """What may not win comes last and says why, in few words."""
    text = shown(trials_table(confirmed.records, confirmed.objective, confirmed.verdict, width=170), 170)
    assert text.index("HiCache 400 GB") > text.rindex("winner")
    assert "failed: host_memory" in text
    assert "measured: breaks" in text


def test_the_footnote_explains_the_flag(confirmed: Made, infeasible: Made) -> None:
    """A P99 of few requests is flagged and the flag explained; without one there is no footnote."""
    assert "* Fewer than 500 requests" in shown(
        trials_table(confirmed.records, confirmed.objective, confirmed.verdict), 100
    )
    text = shown(trials_table(infeasible.records, infeasible.objective, infeasible.verdict), 100)
    assert "*" not in text
    assert "failed: crash" in flat(text)


def test_labels_are_not_markup(confirmed: Made) -> None:
    """Brackets in a label are text: rich must neither style nor swallow them."""
    record = confirmed.records[0].model_copy(update={"setting": Setting(extra={"flag": "[red]x[/]"})})
    text = shown(trials_table([record], confirmed.objective, confirmed.verdict, width=170), 170)
    assert "[red]x[/]" in text


def test_confirmation(confirmed: Made) -> None:
    """The confirmed settings stand best first with their change, the tie, the baseline and the host pool."""
    lines = shown(candidates_table(confirmed.verdict), 170).splitlines()
    assert any("TTFT P99, s (interval)" in line for line in lines)
    winner, tie, on, off = (line for line in lines if "HiCache" in line and "480" in line)
    assert "winner" in winner
    assert "18,432" in winner
    assert "-72% [-73%, -70%]" in winner
    assert ATTACK in tie
    assert tie.rstrip().endswith("tie")
    assert "-46%" in on
    assert "baseline" in off


def test_confirmation_without_a_baseline_gives_no_ratio(unsustained: Made) -> None:
    """Against a baseline that did not sustain the load there is no change to give."""
    text = shown(candidates_table(unsustained.verdict), 120)
    assert "%]" not in text
    assert "winner" in text
