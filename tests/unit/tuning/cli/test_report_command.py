"""`hicache-tune report`: the answer of a study again, with what is asked for beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.console import Run
from tests.support.study_data import ATTACK, confirmed_study

EVIDENCE = Path(__file__).parents[4] / "docs/evidence"
FILES = ("report.html", "report.md", "result.json", "trials.csv")


def test_goodput_is_judged_from_the_records_after_the_fact(run: Run) -> None:
    """A service level needs no new measurement: it is shown to people, to programs and on the page."""
    confirmed_study(Path("results/demo"))
    said = run("report", "demo", "--goodput", "ttft<=500ms, tpot<=50ms", "--json")
    assert said.code == 0
    assert "winner: goodput under TTFT <= 0.5 s, TPOT <= 0.05 s:" in said.err
    goodputs = [detail["goodput"] for detail in json.loads(said.out)["details"]]
    assert [good["judged"] for good in goodputs] == [480, 480, 480]
    assert goodputs[-1]["share"] > goodputs[0]["share"]
    assert "Goodput under TTFT" in Path("results/demo/report.html").read_text(encoding="utf-8")


def test_a_service_level_that_cannot_be_read_is_refused_before_anything_is_written(run: Run) -> None:
    """The sentence says what to write, and the page of before stays as it was."""
    said = run("report", "demo", "--goodput", "ttft<500")
    assert said.code == 1
    assert "service level `ttft<500`: `ttft<500` is no limit; write it as `ttft<=500ms`" in said.err
    assert not Path("results").exists()


def test_every_form_lies_in_the_study(run: Run) -> None:
    """One command writes the page, the text, the data and the rows; nothing is printed on stdout unasked."""
    confirmed_study(Path("results/demo"))
    said = run("report", "demo")
    assert (said.code, said.out) == (0, "")
    for name in FILES:
        assert Path("results/demo", name).stat().st_size > 0, name
        assert ATTACK not in Path("results/demo/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("form", "file"), [("html", 0), ("md", 1), ("json", 2), ("csv", 3)])
def test_a_form_is_printed_as_it_lies_there(run: Run, form: str, file: int) -> None:
    """What goes to a pipe is what is in the file, and nothing besides."""
    confirmed_study(Path("results/demo"))
    said = run("report", "demo", "--format", form)
    assert said.code == 0
    assert said.out == Path("results/demo", FILES[file]).read_text(encoding="utf-8")


def test_json_is_printed_once(run: Run) -> None:
    """Both ways to ask for JSON are one."""
    confirmed_study(Path("results/demo"))
    said = run("report", "demo", "--format", "json", "--json")
    assert json.loads(said.out)["study"] == "demo"


def test_two_forms_cannot_share_stdout(run: Run) -> None:
    """The sentence says which flags are at odds."""
    said = run("report", "demo", "--format", "md", "--json")
    assert said.code == 1
    assert "--json and --format md would both print on stdout; give one of them" in said.err


def test_an_unknown_form_is_refused(run: Run) -> None:
    """The sentence lists what there is."""
    said = run("report", "demo", "--format", "pdf")
    assert said.code == 1
    assert "pdf" in said.err
    assert "html" in said.err


@pytest.mark.parametrize("study", ["h200-2026-11-30", "h200-2026-11-30b"])
def test_a_study_of_an_older_version_still_renders(run: Run, study: str) -> None:
    """Studies measured on an H200 before many figures were kept have their report: verdict, fronts, plots."""
    restored(EVIDENCE / study, Path("results/old"))
    said = run("report", "old", "--json")
    assert said.code == 0, said.err
    result, old = json.loads(said.out), json.loads((EVIDENCE / study / "result.json").read_text(encoding="utf-8"))
    assert result["verdict"]["kind"] == old["verdict"]["kind"]
    assert len(result["trials"]) == len(old["trials"])
    assert {front["goal"] for front in result["fronts"]} >= {"throughput", "host memory"}
    page = Path("results/old/report.html").read_text(encoding="utf-8")
    assert "Time to first token by tier" in page
    assert "TTFT P99 against host memory" in page


def restored(evidence: Path, root: Path) -> None:
    """Lay a study out as it was when it ran: a folder for each trial, with its record and its requests."""
    root.mkdir(parents=True)
    shutil.copy(evidence / "study.json", root)
    for record in (evidence / "trials").glob("*.json"):
        folder = root / "trials" / record.stem
        folder.mkdir(parents=True)
        shutil.copy(record, folder / "trial.json")
        shutil.copy(evidence / "requests" / f"{record.stem}.parquet", folder / "requests.parquet")
