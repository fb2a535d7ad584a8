"""The winner under more load than was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.store import TrialRecord, read_trials
from scenarios import Plan, load_scenario
from scenarios.plan import Phase, Session
from tests.support.simulated import TRIAL_S
from tests.support.simulated_search import OBJECTIVE, SEED, Search, clock_of_trials
from tests.support.trials import failed, interrupted, invalid, measured, not_sustainable
from tuning.stress import STRESS_SEED_OFFSET, stressed
from tuning.study import BASELINES
from tuning.verdict import Kind
from tuning.verdict.words import under_stress

OFF, ON = BASELINES


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Make an empty study, with a clock that the trials move."""
    return Search(tmp_path / "study", clock_of_trials(monkeypatch))


def test_the_winner_is_measured_once_under_more_load(search: Search) -> None:
    """On sessions of its own, after the confirmation; the verdict says how it bore it, and a resume knows."""
    verdict = search.searcher(stress=True).run()
    purpose, setting, seed = search.engine.asked[-1]
    assert (purpose, seed) == ("stress", SEED + STRESS_SEED_OFFSET)
    assert verdict.winner is not None
    assert setting.key == verdict.winner.key
    assert "; it holds at 1.5 times the load: TTFT P99 0." in verdict.sentence
    asked = len(search.engine.asked)
    assert search.searcher(stress=True).run() == verdict
    assert len(search.engine.asked) == asked


def test_a_winner_that_breaks_down_is_a_caution_and_stays_the_winner(search: Search) -> None:
    """What nobody asked for is no ground to take the win; whoever plans for growth must know it."""
    calm = search.searcher().run()
    assert calm.winner is not None
    winner = next(r.setting for r in read_trials(search.root) if r.setting.key == calm.winner.key)
    search.engine.answers[winner.key].append(not_sustainable(winner))
    verdict = search.searcher(stress=True).run()
    assert verdict.kind is Kind.BETTER
    assert (verdict.winner, verdict.launch_command) == (calm.winner, calm.launch_command)
    said = "; it does not sustain 1.5 times the load (time to first token only grew during the load)"
    assert verdict.sentence == calm.sentence + said


@pytest.mark.parametrize("effort", [{}, {"stress": True, "budget_s": 15 * TRIAL_S}, {"stress": True, "trials": 2}])
def test_what_is_not_asked_for_or_has_no_time_is_left_out(search: Search, effort: dict[str, Any]) -> None:
    """A trial of one and a half times the load takes half as long again."""
    search.searcher(**{"budget_s": 14.8 * TRIAL_S, **effort}).run()
    stress = [purpose for purpose, _, _ in search.engine.asked if purpose == "stress"]
    assert len(stress) == (1 if effort.get("trials") else 0)


def test_without_a_winner_nothing_is_stressed(search: Search) -> None:
    """A search that is not confirmed recommends nothing yet."""
    search.searcher(stress=True, confirm_rounds=0).run()
    assert {purpose for purpose, _, _ in search.engine.asked} == {"search"}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (measured(ON, 0.5), "; it holds at 1.5 times the load: TTFT P99 0.500 s"),
        (measured(ON, 0.5, error_rate=0.2), "; at 1.5 times the load it breaks `errors <= 1%`"),
        (
            not_sustainable(ON),
            "; it does not sustain 1.5 times the load (time to first token only grew during the load",
        ),
        (failed(ON), "; it does not sustain 1.5 times the load (the engine failed with gpu_oom (exit code 1): it said"),
        (invalid(ON), ""),
        (interrupted(ON), ""),
        (measured(OFF, 0.5), ""),
    ],
)
def test_one_clause_says_how_the_winner_bore_it(record: TrialRecord, said: str) -> None:
    """A measurement that is at fault itself, or of another setting, says nothing."""
    told = [measured(ON, 9.0), record.model_copy(update={"purpose": "stress"})]
    assert under_stress(told, ON.key, OBJECTIVE).startswith(said)


def test_a_closed_load_gets_half_as_many_sessions_again() -> None:
    """Twelve at a time become eighteen."""
    scenario = load_scenario("cpu-chat")
    harder = stressed(scenario, Plan("cpu-chat", 1, 12, ()))
    assert harder.sessions.concurrency == 18


def test_an_open_load_gets_half_as_many_arrivals_again() -> None:
    """By its rate, or by its sessions where none is given."""
    scenario = load_scenario("cpu-chat").opened(2.0)
    harder = stressed(scenario, Plan("cpu-chat", 1, None, (), 2.0))
    assert harder.arrivals is not None
    assert harder.arrivals.mean_per_s == 3.0
    recorded = tuple(Session(f"s{n}", Phase.COUNTED, (), float(n)) for n in range(1, 11))
    harder = stressed(scenario, Plan("recorded", 1, None, recorded))
    assert harder.arrivals is not None
    assert harder.arrivals.mean_per_s == 1.5
