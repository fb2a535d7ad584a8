"""The report as a page."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from harness.store import Outcome
from tests.support.study_data import ATTACK, OFF, Made, StudyMaker
from tuning.objective import read_metric, read_objective
from tuning.report import study_result, write_report
from tuning.report.markdown import markdown
from tuning.verdict import decide

PLOTS = 15
"""Of a study that has seen everything."""


class Page(HTMLParser):
    """What a browser would see of a page: its elements, the text for people, and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.command = ""
        self.headings: list[str] = []
        self.names: set[str] = set()
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and where it points."""
        self.tags.append(tag)
        self._inside.append(tag)
        self.names |= {value or "" for name, value in attrs if name == "id"}
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]

    def handle_endtag(self, tag: str) -> None:
        """Leave the element."""
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Gather what people read."""
        if not {"script", "style"} & set(self._inside):
            self.text += data
        if self._inside[-1:] == ["h2"]:
            self.headings.append(data)
        if self._inside[-1:] == ["pre"] and not self.command:
            self.command = data


def page_of(made: Made) -> tuple[str, Page]:
    """Write the report and read it back."""
    path = write_report(made.root, made.study, made.records, made.verdict, made.objective)
    assert path == made.root / "report.html"
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture(scope="module")
def report(confirmed: Made) -> tuple[str, Page]:
    """Give the page of a study that ends well."""
    return page_of(confirmed)


def test_verdict_first_then_the_rest(report: tuple[str, Page], confirmed: Made) -> None:
    """The verdict is the first big sentence, and the sections follow in the order of what a reader wants."""
    _, page = report
    assert page.text.index(confirmed.verdict.sentence) < page.text.index("Launch the winner")
    assert page.headings == [
        "Launch the winner", "Confirmation", "Trials", "Left out, and why", "In detail", "Headroom and reload cost",
        "Latency", "The search", "What decides", "What it is paid with", "Memory and reloads", "Environment",
        "How it was measured", "Remarks",
    ]  # fmt: skip


def test_the_command_can_be_pasted(report: tuple[str, Page], confirmed: Made) -> None:
    """The command is broken into lines for reading, and a shell still reads the very same words."""
    _, page = report
    assert confirmed.verdict.launch_command is not None
    assert page.command.count("\\\n") > 3
    assert shlex.split(page.command.replace("\\\n", " ")) == shlex.split(confirmed.verdict.launch_command)


def test_a_command_with_variables_can_be_pasted(tmp_path: Path, confirmed: Made) -> None:
    """Environment variables, spaces and quotes survive the line breaks."""
    command = "env A_B=1 C='x y' python -m sglang.launch_server --model-path 'my model' --flag"
    verdict = confirmed.verdict.model_copy(update={"launch_command": command})
    path = write_report(tmp_path, confirmed.study, confirmed.records, verdict, confirmed.objective)
    shown = Page(path.read_text(encoding="utf-8")).command
    assert shown.splitlines()[1:4] == ["  A_B=1 \\", "  'C=x y' \\", "  python -m sglang.launch_server \\"]
    assert shlex.split(shown.replace("\\\n", " ")) == shlex.split(command)


def test_texts_come_escaped(report: tuple[str, Page]) -> None:
    """A label, an engine's words and a reason with a script in them are text, in the page and in the plots."""
    text, page = report
    assert ATTACK not in text
    assert page.text.count(ATTACK) >= 4
    assert page.tags.count("script") == PLOTS + 2


def test_the_page_needs_nothing_else(report: tuple[str, Page]) -> None:
    """There is no address in it that a browser could open, and a policy that forbids to open one."""
    text, page = report
    assert {address.removeprefix("#") for address in page.addresses} <= page.names
    assert set(re.findall(r"https?://[\w.-]+", text)) <= {"http://www.w3.org"}
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "url(" not in text[: text.index("</style>")]


def test_figures_of_every_plot_are_there(report: tuple[str, Page]) -> None:
    """All plots of a full study have their figure, but for the importance, which few trials cannot tell."""
    text, page = report
    figures = re.findall(r'<script type="application/json">(.*?)</script>', text, flags=re.DOTALL)
    assert len(figures) == PLOTS
    assert all("data" in json.loads(figure) for figure in figures)
    assert not any("<" in figure for figure in figures), "a script element ends at the first </script"
    assert page.text.count("No plot") == 1
    assert "fewer than 20 cannot tell a flag that decides from luck" in page.text


def test_rules_and_remarks_are_told(report: tuple[str, Page]) -> None:
    """How it was measured and what to doubt stand on the page."""
    _, page = report
    told = (
        "resample whole sessions",
        "fresh seeds",
        "steady window",
        "nothing is claimed on transfer cost",
        "0.5 GB/s on purpose",
        "--page-size 64 where 32 was asked for",
        "Fewer than 500 requests",
    )
    for words in told:
        assert words in page.text


def test_nothing_feasible(infeasible: Made) -> None:
    """A study without an answer has a page that says so, with the engine's own words and no command."""
    _, page = page_of(infeasible)
    assert "no setting of 2 is feasible" in page.text
    assert "Segmentation fault" in page.text
    assert "Launch" not in page.text
    assert page.text.count("No plot") == 9


def test_not_confirmed(unconfirmed: Made) -> None:
    """Before a confirmation there is a best so far, no winner, and no confirmation table."""
    _, page = page_of(unconfirmed)
    assert "Launch the best so far" in page.text
    assert "Confirmation" not in page.text
    assert "winner" not in page.text


def test_baseline_not_sustained(unsustained: Made) -> None:
    """The page gives no ratio to a baseline that did not sustain the load."""
    _, page = page_of(unsustained)
    assert "sustains the load" in page.text
    assert re.search(r"-\d+%", page.text) is None


def test_a_study_without_trials(tmp_path: Path) -> None:
    """A search that was stopped at once has a page, too."""
    _, page = page_of(StudyMaker(tmp_path).made())
    assert "nothing was measured" in page.text


def test_more_load_is_a_caution_and_no_comparison(tmp_path: Path, confirmed: Made) -> None:
    """A trial under stress has a table of its own; what it did not sustain is not held against the search."""
    grew = "time to first token only grew"
    changes = {"purpose": "stress", "number": 99, "outcome": Outcome.NOT_SUSTAINABLE, "reason": grew}
    stress = confirmed.records[2].model_copy(update=changes)
    plain, found = (
        study_result(confirmed.root, confirmed.study, records, confirmed.verdict, confirmed.objective)
        for records in (confirmed.records, [*confirmed.records, stress])
    )
    assert (found.left_out, found.fronts, found.sensitivity) == (plain.left_out, plain.fronts, plain.sensitivity)
    records = [*confirmed.records, stress]
    write_report(tmp_path, confirmed.study, records, confirmed.verdict, confirmed.objective, answer=found)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Under more load" in page.headings
    assert page.text.count(grew) == 1


def test_the_page_can_be_used_without_eyes_or_a_mouse(report: tuple[str, Page]) -> None:
    """Headings do not skip a level, every plot is described, every column has its head, and groups open by a button."""
    text, page = report
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert text.count('<div class="plot" role="img" aria-label="Plot: ') == PLOTS
    assert '<html lang="en">' in text
    assert "<th>" not in text
    assert text.count('<tbody class="group" data-group>') == text.count('class="fold" aria-expanded="false"') > 0
    assert text.count('<div class="wide"') == text.count('<div class="wide" role="region" tabindex="0" aria-label="')


def test_another_objective_is_what_settings_are_compared_by(tmp_path: Path, confirmed: Made) -> None:
    """Headline, confirmation and history are of it; settings that trade it against a further goal are listed."""
    objective = replace(
        confirmed.objective, metric=read_objective("tpot.p95"), pareto=(read_metric("throughput.requests"),)
    )
    verdict = decide(confirmed.records, confirmed.root, baseline_key=OFF.key, objective=objective)
    answer = study_result(confirmed.root, confirmed.study, confirmed.records, verdict, objective)
    write_report(tmp_path, confirmed.study, confirmed.records, verdict, objective, answer=answer)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "TPOT P95 of the winner" in page.text
    assert "TPOT P95, s (interval)" in page.text
    assert "TPOT P95 of each trial." in page.text
    assert "Trade-offs" in page.headings
    text = markdown(answer, confirmed.study.search)
    assert "TPOT P95, s (interval)" in text
    assert "| trial | setting | TPOT P95 | throughput |" in text


def test_no_part_of_a_page_is_left_behind(report: tuple[str, Page], confirmed: Made) -> None:
    """The page is written as a whole or not at all: no temporary file stays."""
    assert [path.name for path in confirmed.root.iterdir() if path.name.endswith(".tmp")] == []
