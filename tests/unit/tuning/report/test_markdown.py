"""The report as Markdown."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.support.study_data import ATTACK, Made, StudyMaker
from tuning.report import study_result
from tuning.report.markdown import code, markdown, table, text

READER = MarkdownIt("commonmark").enable("table")


def report_of(made: Made) -> str:
    """Write the report of `made`."""
    result = study_result(made.root, made.study, made.records, made.verdict, made.objective)
    return markdown(result, made.study.search)


@pytest.fixture(scope="module")
def report(confirmed: Made) -> str:
    """Give the report of a study that ends well."""
    return report_of(confirmed)


def test_verdict_first_then_the_rest(report: str, confirmed: Made) -> None:
    """The first heading is the verdict, and the sections follow in the order of what a reader wants."""
    heads = re.findall(r"^#+ (.*)$", report, flags=re.MULTILINE)
    assert heads[0] == text(confirmed.verdict.sentence.rstrip(".")) + "."
    assert heads[1:] == [
        "Launch the winner", "Confirmation", "Trials", "Left out, and why", "Latencies, in seconds",
        "Headroom and reload cost", "What decides", "TTFT P99 against throughput", "TTFT P99 against host memory",
        "TTFT P99 against reloads",
        "Environment", "How it was measured", "Remarks",
    ]  # fmt: skip


def test_the_command_can_be_pasted(report: str, confirmed: Made) -> None:
    """A shell reads the very words of the verdict from the block of code."""
    block = next(token for token in READER.parse(report) if token.type == "fence")
    assert confirmed.verdict.launch_command is not None
    assert shlex.split(block.content.replace("\\\n", " ")) == shlex.split(confirmed.verdict.launch_command)


def test_no_text_becomes_markup(report: str) -> None:
    """A label and an engine's words with a script in them stay words."""
    tokens = READER.parse(report)
    inline = [child for token in tokens for child in token.children or []]
    assert not [token for token in (*tokens, *inline) if token.type.startswith("html")]
    assert ATTACK in "".join(child.content for child in inline)


def test_every_row_has_the_cells_of_its_heading(report: str) -> None:
    """A bar in a text would add a cell."""
    for block in re.findall(r"(?:^\|.*\n)+", report, flags=re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1


LINES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=40)
TRICKY = st.text(alphabet=st.sampled_from("<>&|*_`[]()!#+-1.~$\\ ab\n"), max_size=40)


@given(LINES | TRICKY)
def test_whatever_a_text_holds_is_read_as_it_was(said: str) -> None:
    """In a cell of a table and in a line of a list, a reader sees the words that were given, on one line."""
    shown = " ".join(said.split())
    cell = READER.render("\n".join(table(("head", "more"), [(said, "end")])))
    assert html.unescape(re.findall(r"<td>(.*?)</td>", cell, flags=re.DOTALL)[0]) == shown
    line = READER.render(f"- {text(said)}\n")
    assert html.unescape(line.removeprefix("<ul>\n<li>").removesuffix("</li>\n</ul>\n")) == shown


def test_code_cannot_end_its_block() -> None:
    """The fence is longer than any run of backticks inside."""
    content = "echo ````\n```"
    (block,) = READER.parse("\n".join(code(content)))
    assert block.content == content + "\n"


def test_not_confirmed(unconfirmed: Made) -> None:
    """Before a confirmation there is a best so far, no winner, and no confirmation."""
    report = report_of(unconfirmed)
    assert "## Launch the best so far" in report
    assert "Confirmation" not in report
    assert "winner" not in report


def test_nothing_feasible(infeasible: Made) -> None:
    """A study without an answer says so, and what the engine said."""
    report = report_of(infeasible)
    assert report.startswith("# No setting of 2 is feasible")
    assert "Segmentation fault" in report
    assert "Launch" not in report


def test_a_study_without_trials(tmp_path: Path) -> None:
    """A search that was stopped at once has a text, too."""
    assert report_of(StudyMaker(tmp_path).made()).startswith("# Nothing was measured")
