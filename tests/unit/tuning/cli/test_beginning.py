"""With what a search begins: earlier studies, imported trials, and the sampler that the user asks for."""

from __future__ import annotations

import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tests.support.console import Run
from tests.support.simulated import SimulatedEngine, p99_s
from tuning.config import read_study
from tuning.study import BASELINES

SMALL = ("search", "--engine", "cpu", "--scenario", "cpu-smoke", "--page-size", "16", "--mem-fraction-static", "0.88")
QUICK = (
    *SMALL, "--transfer", "kernel/page_first", "--hicache-write-policy", "write_back", "--confirm-rounds", "0",
)  # fmt: skip
RATIOS = ("--hicache-ratio", "2,3,4,5")


def test_a_search_begins_with_what_did_well_before(run: Run, engine: SimulatedEngine) -> None:
    """The best settings of an earlier study under equal conditions come right after the baselines, and are measured."""
    run(*QUICK, *RATIOS, "--study", "old", "--trials", "6")
    best = min(engine.settings("search")[2:], key=p99_s)
    engine.asked.clear()
    said = run(*QUICK, *RATIOS, "--study", "new", "--trials", "3")
    assert f"the search begins with {best.label}, which did well in old" in said.err
    assert engine.settings("search")[2] == best
    engine.asked.clear()
    said = run(*QUICK, *RATIOS, "--study", "cold", "--trials", "3", "--no-warm-start")
    assert "the search begins with" not in said.err


def test_trials_of_an_equal_study_are_taken_over(run: Run, engine: SimulatedEngine) -> None:
    """They are not measured again: over other choices the search goes on with what is new."""
    run(*QUICK, *RATIOS, "--study", "old", "--trials", "5")
    known = {setting.key for setting in engine.settings("search")}
    engine.asked.clear()
    said = run(*QUICK, "--study", "new", "--trials", "7", "--hicache-ratio", "2,3,4,5,6", "--import", "old")
    assert "3 settings of the search are known from old" in said.err
    new = {setting.key for setting in engine.settings("search")}
    assert len(new) == len(engine.asked) == 2
    assert not new & (known | {baseline.key for baseline in BASELINES})
    assert read_study(Path("results/new")).imported_from == "old"
    assert len(json.loads(Path("results/new/result.json").read_text())["trials"]) == 7


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--import", "old", "--seed", "2"),
            "--import old: its trials were measured under other conditions: seed: w",
        ),
        (("--import", "none"), "there is no study in results/none"),
        (("--import", "new"), "--import new: this is the study itself; give the new one another --study name"),
    ],
)
def test_an_import_that_may_not_be_makes_no_study(
    run: Run, engine: SimulatedEngine, arguments: tuple[str, ...], said: str
) -> None:
    """The folder of the new study is not made, so that the command can be given again."""
    run(*QUICK, *RATIOS, "--study", "old", "--trials", "2")
    answer = run(*QUICK, *RATIOS, "--study", "new", *arguments)
    assert answer.code == 1
    assert said in answer.err
    assert not Path("results/new").exists()


def test_an_import_into_a_study_that_exists_is_refused(run: Run, engine: SimulatedEngine) -> None:
    """Trials are taken over when a study is made, not later."""
    run(*QUICK, *RATIOS, "--study", "old", "--trials", "2")
    answer = run(*QUICK, *RATIOS, "--study", "old", "--resume", "--import", "other")
    assert answer.code == 1
    assert "--import is for a new study; leave it out to go on with this one" in answer.err


def test_a_sampler_without_its_package_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence names the package; nothing is launched."""
    found: dict[str, ModuleSpec | None] = {"torch": None}
    monkeypatch.setattr("tuning.samplers.find_spec", found.get)
    said = run(*QUICK, "--sampler", "gp")
    assert said.code == 1
    assert "--sampler gp needs the package `torch`; install it with `pip install torch`, or leave" in said.err


def test_the_sampler_may_differ_from_one_resume_to_the_next(run: Run, engine: SimulatedEngine) -> None:
    """It is an effort, not what is searched; a small space is taken whole, no setting twice."""
    ratios = (*QUICK, "--study", "s", "--hicache-ratio", "2,3")
    assert run(*ratios, "--trials", "3", "--sampler", "random").code == 0
    assert run(*ratios, "--trials", "9", "--sampler", "grid", "--resume").code == 0
    assert len({setting.key for setting in engine.settings("search")}) == len(engine.asked) == 5
