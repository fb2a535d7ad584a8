"""`hicache-tune report`: the answer of a study again, with what is asked for beside it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.console import Run
from tests.support.study_data import confirmed_study


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
