"""Which trials of a search race, against whom, and what becomes of those that lose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.support.simulated import p99_s
from tests.support.simulated_search import SEED, Search, clock_of_trials
from tests.support.trials import measured, surely_worse
from tuning.objective import TTFT_P99, read_metric, read_objective
from tuning.racing import rival_of
from tuning.study import BASELINES
from tuning.verdict import Kind

OFF, ON = BASELINES


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Make an empty study, with a clock that the trials move."""
    return Search(tmp_path / "study", clock_of_trials(monkeypatch))


def test_proposals_race_against_the_best_so_far_and_nothing_else_does(search: Search) -> None:
    """A baseline is what others are measured by, and a confirmation is a proof: both are played to their ends."""
    search.searcher(stress=True).run()
    purposes = [purpose for purpose, _, _ in search.engine.asked]
    racing = [number for number, rival in enumerate(search.engine.rivals) if rival is not None]
    assert racing == [2, 3, 4, 5]
    assert set(purposes[6:]) == {"confirm", "stress"}
    for number in racing:
        rival, earlier = search.engine.rivals[number], search.engine.asked[:number]
        best = min(range(number), key=lambda n: p99_s(earlier[n][1]))
        assert rival is not None
        assert rival.trial == best
        assert rival.p99_s == pytest.approx(p99_s(earlier[best][1]))
        assert rival.requests_path == search.root / "trials" / f"{best:04d}-search" / "requests.parquet"


def test_nobody_races_when_the_user_does_not_want_it(search: Search) -> None:
    """`--no-racing` measures every setting to its end."""
    search.searcher(racing=False).run()
    assert set(search.engine.rivals) == {None}


@pytest.mark.parametrize("changes", [{"metric": read_objective("ttft.p50")}, {"pareto": (read_metric("throughput"),)}])
def test_nobody_races_for_another_goal_than_the_ttft_p99(search: Search, changes: dict[str, Any]) -> None:
    """What a part of a load says of throughput or reloaded bytes is not what the whole would have said."""
    searcher = search.searcher(confirm_rounds=0)
    assert searcher.objective.goals == (TTFT_P99,)
    searcher.objective = replace(searcher.objective, **changes)
    searcher.run()
    assert set(search.engine.rivals) == {None}


def test_a_setting_that_lost_is_told_and_never_confirmed(search: Search) -> None:
    """The sampler hears what its P99 would have been; the figure of half a load decides nothing."""
    search.searcher(trials=3, confirm_rounds=0).run()
    third = search.engine.settings("search")[2]
    other = Search(search.root.parent / "other", search.clock)
    other.engine.answers[third.key].append(surely_worse(third))
    verdict = other.searcher().run()
    assert verdict.kind is Kind.BETTER
    assert third not in other.engine.settings("confirm")
    assert other.engine.settings("search").count(third) == 1
    trials = optuna.load_study(study_name="hicache-tune", storage=f"sqlite:///{other.root / 'study.db'}").trials
    assert trials[0].value == 1.6
    assert all(rival is None or rival.trial != 2 for rival in other.engine.rivals)


@pytest.mark.parametrize(("seed", "is_one"), [(SEED, True), (SEED + 1, False)])
def test_only_a_trial_of_the_same_sessions_is_a_rival(tmp_path: Path, seed: int, is_one: bool) -> None:
    """Its requests must also be on disk."""
    best = measured(ON, 0.5, number=4, seed=SEED)
    assert rival_of(best, tmp_path, seed) is None
    folder = tmp_path / "trials" / "0004-search"
    folder.mkdir(parents=True)
    (folder / "requests.parquet").touch()
    assert (rival_of(best, tmp_path, seed) is not None) is is_one
    assert rival_of(None, tmp_path, seed) is None
