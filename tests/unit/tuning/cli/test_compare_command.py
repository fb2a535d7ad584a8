"""`hicache-tune compare`: plans, exit codes, the answer for people and for programs, and what is refused."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.console import Run
from tests.support.simulated import SimulatedEngine
from tests.support.trials import failed, not_sustainable
from tuning.comparison import Comparer
from tuning.study import BASELINES

OFF, ON = BASELINES
BARE = ("--engine", "cpu", "--scenario", "cpu-smoke", "--sessions", "2")
CPU = (*BARE, "--study", "s")
PAIR = ("compare", "off", "hicache,ratio=6")
COMPARISON = Path("results/s/compare.json")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> SimulatedEngine:
    """Put a simulated engine in place of trials."""
    simulated = SimulatedEngine()
    monkeypatch.setattr("tuning.comparison.Comparer", partial(Comparer, measure=simulated))
    return simulated


def test_a_dry_run_shows_both_launches(run: Run, engine: SimulatedEngine) -> None:
    """Both settings with their commands, and how it goes on; nothing is launched or written."""
    said = run(*PAIR, *CPU, "--dry-run")
    assert (said.code, said.out, engine.asked) == (0, "", [])
    assert "A: HiCache off" in said.err
    assert "B: HiCache ratio 6, write_through, kernel/page_first" in said.err
    assert "--enable-hierarchical-cache --hicache-ratio 6" in said.err
    assert "2 to 10 rounds of both, until the interval of the difference is 5% wide" in said.err
    assert not Path("results").exists()


def test_the_answer_is_a_sentence_and_a_file(run: Run, engine: SimulatedEngine) -> None:
    """The sentence for people on stderr; compare.json and, when asked, stdout have the same for programs."""
    said = run(*PAIR, *CPU, "--json")
    assert said.code == 0
    assert "B is 70% lower [70%, 70%] than A in TTFT P99" in said.err
    found = json.loads(COMPARISON.read_text(encoding="utf-8"))
    assert found == json.loads(said.out)
    assert (found["schema_version"], found["kind"], found["ended"]) == (1, "lower", "settled")
    assert len(engine.asked) == 4


def test_a_setting_of_an_earlier_study_is_compared(run: Run, engine: SimulatedEngine) -> None:
    """`s:1` is what trial 1 of study s ran; the label that a report shows will do as well."""
    run(*PAIR, *CPU)
    said = run("compare", "s:1", "HiCache off", *BARE, "--study", "again")
    assert said.code == 0
    assert "B is 233% higher" in said.err


def test_undecided_is_exit_code_124(run: Run, engine: SimulatedEngine) -> None:
    """As when a search's budget ends before a verdict."""
    engine.noise = 0.5
    said = run("compare", "ratio=6", "ratio=5.5", *CPU, "--rounds-most", "2", "--until", "1%")
    assert said.code == 124
    assert "Not decided after all rounds" in said.err


def test_neither_is_exit_code_2(run: Run, engine: SimulatedEngine) -> None:
    """As when a search finds nothing feasible."""
    engine.answers[OFF.key].extend([not_sustainable(OFF)] * 2)
    engine.answers[ON.key].extend([failed(ON)] * 2)
    said = run("compare", "off", "hicache", *CPU)
    assert said.code == 2
    assert "Neither holds" in said.err


def test_a_finished_comparison_is_only_said_again(run: Run, engine: SimulatedEngine) -> None:
    """A resume measures nothing; other settings are another study."""
    run(*PAIR, *CPU)
    assert run(*PAIR, *CPU, "--resume").code == 0
    assert len(engine.asked) == 4
    other = run("compare", "off", "hicache,ratio=4", *CPU, "--resume")
    assert other.code == 1
    assert "is another study: hicache_ratio: was 6" in other.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "off"), 'Command "compare" parameter B requires an argument.'),
        (("compare", "off", "baseline", *CPU), "`off` and `baseline` give the same server (HiCache off); compare two"),
        (("compare", "off", "hicach", *CPU), "setting `hicach`: unknown word `hicach`; did you mean `hicache`?"),
        (("compare", "off", "s:3", *CPU), "there is no study in results/s"),
        ((*PAIR, *CPU, "--page-size", "32"), "--page-size: compare searches nothing; write it in A or B"),
        ((*PAIR, *CPU, "--search", "schedule-policy=lpm"), "--search: compare searches nothing; write the flag in A"),
        ((*PAIR, *CPU, "--rounds", "4", "--rounds-most", "3"), "--rounds-most 3 is below --rounds 4; raise it"),
        ((*PAIR, *CPU, "--until", "5"), "--until 5: write a percentage above 0%, such as 5%"),
        ((*PAIR, *CPU, "--budget", "15"), "--budget 15: write a duration above zero"),
        ((*PAIR, *CPU, "--engine-arg=--hicache-ratio=3"), "--hicache-ratio"),
        (
            (*PAIR, "--engine", "attach", "--url", "http://127.0.0.1:9"),
            "--engine attach: nothing restarts the server with another setting; give --restart-hook",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """It names the word at fault and what to do; nothing is written."""
    answer = run(*arguments)
    assert answer.code == 1
    assert said in answer.err
    assert not Path("results").exists()
