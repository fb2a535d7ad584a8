"""Two settings against each other: what is measured, when it ends, and what is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine.failure import FailureKind
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.errors import EngineError
from harness.lab import Lab
from harness.load.job import ApiName
from harness.telemetry import NvmlUnavailable
from scenarios.plan import Plan
from tests.support.simulated import TRIAL_S, SimulatedEngine
from tests.support.simulated_search import OBJECTIVE, SEED, Clock, QuietWatch, clock_of_trials
from tests.support.trials import failed, invalid, measured, not_sustainable
from tuning.comparison import COMPARE_SEED_OFFSET, Comparer, Comparison, Kind
from tuning.confirm import Rounds
from tuning.objective import read_objective
from tuning.study import BASELINES

OFF, ON = BASELINES
LARGE = Setting(hicache=True, hicache_ratio=6.0).canonical()
LARGER = Setting(hicache=True, hicache_ratio=6.2).canonical()
"""1 % faster than LARGE."""
ROUNDS = Rounds(2, 6)
FIRST = SEED + COMPARE_SEED_OFFSET


class Bench:
    """One folder, in which two settings are compared life after life."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root, self.clock, self.engine, self.stop_after = root, clock, SimulatedEngine(), 10**6
        self.engine.after_each = clock.passes

    def compare(
        self, a: Setting, b: Setting, *, rounds: Rounds = ROUNDS, until: float = 0.05, **changes: Any
    ) -> Comparison:
        """Begin a life."""
        watch = QuietWatch()
        lab = Lab(
            root=self.root,
            spec=EngineSpec(python=Path("python"), model="Org/Name", sglang_version="0.5.15"),
            watch=watch,
            should_stop=lambda: len(self.engine.asked) >= self.stop_after,
            must_hurry=lambda: False,
            api=ApiName.CHAT,
            load_limit_s=600,
            warm_up_tokens=100,
            device=NvmlUnavailable("no GPU"),
        )
        return Comparer(
            lab=lab,
            pair=(a, b),
            watch=watch,
            make_plan=lambda seed: Plan("simulated", seed, 1, ()),
            seed=SEED,
            rounds=rounds,
            until=until,
            measure=self.engine,
            **{"objective": OBJECTIVE, **changes},
        ).run()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Give an empty folder, and a clock that the trials move."""
    return Bench(tmp_path, clock_of_trials(monkeypatch, budget="tuning.comparison.Budget"))


def test_both_play_the_same_fresh_sessions_in_turn(bench: Bench) -> None:
    """The order is reversed in the second round; a difference that is clear ends it there."""
    found = bench.compare(OFF, LARGE)
    asked = [(OFF, FIRST), (LARGE, FIRST), (LARGE, FIRST + 1), (OFF, FIRST + 1)]
    assert bench.engine.asked == [("compare", setting, seed) for setting, seed in asked]
    assert (found.kind, found.ended) == (Kind.LOWER, "settled")
    assert found.change == pytest.approx(-0.7, abs=0.001)
    assert found.sentence.startswith("B is 70% lower [70%, 70%] than A in TTFT P99. B (HiCache ratio 6, write_through,")
    assert found.b.launch_command is not None
    assert "--hicache-ratio 6.0" in found.b.launch_command


def test_the_sentence_is_about_b(bench: Bench) -> None:
    """Turned round, B is the higher one."""
    found = bench.compare(LARGE, OFF)
    assert found.kind is Kind.HIGHER
    assert found.sentence.startswith("B is 233% higher [233%, 233%] than A in TTFT P99. B (HiCache off) ")


def test_settings_that_nobody_could_tell_apart_are_equal(bench: Bench) -> None:
    """Surely within 2 %, which is what the verdict of a search calls a tie."""
    found = bench.compare(LARGE, LARGER)
    assert (found.kind, found.ended) == (Kind.EQUAL, "settled")
    assert found.sentence.startswith("A and B are equal within 2 %: B's TTFT P99 differs by [-1.1%, -1.1%] from A's.")


def test_what_is_not_settled_goes_on_to_the_last_round(bench: Bench) -> None:
    """And is then not decided, with the interval that was reached."""
    bench.engine.noise = 0.5
    found = bench.compare(LARGE, LARGER, until=0.01)
    assert len(bench.engine.asked) == 12
    assert (found.kind, found.ended) == (Kind.UNDECIDED, "rounds")
    assert found.sentence.startswith("Not decided after all rounds: B's TTFT P99 differs by [-")
    assert found.a.figures is not None
    assert len(found.a.figures.trial_numbers) == 6


def test_an_interval_as_narrow_as_asked_for_is_an_answer(bench: Bench) -> None:
    """Whoever is content with 40 % is told that they are equal within it."""
    bench.engine.noise = 0.2
    found = bench.compare(LARGE, LARGER, until=0.4)
    assert (found.kind, found.ended) == (Kind.EQUAL, "settled")
    assert "equal within" in found.sentence


def test_the_budget_ends_between_two_trials(bench: Bench) -> None:
    """A round that only one of them came to is left out of its figures."""
    bench.engine.noise = 0.5
    found = bench.compare(LARGE, LARGER, rounds=Rounds(2, 9), until=0.01, budget_s=5.5 * TRIAL_S)
    assert len(bench.engine.asked) == 5
    assert (found.kind, found.ended) == (Kind.UNDECIDED, "budget")
    assert found.sentence.startswith("Not decided when the budget ended")
    assert found.a.figures is not None
    assert found.b.figures is not None
    assert len(found.a.figures.trial_numbers) == len(found.b.figures.trial_numbers) == 2


def test_a_comparison_that_was_stopped_goes_on(bench: Bench) -> None:
    """Nothing is measured twice."""
    bench.stop_after = 3
    assert bench.compare(OFF, LARGE).ended == "interrupted"
    bench.stop_after = 10**6
    assert bench.compare(OFF, LARGE).ended == "settled"
    assert len(bench.engine.asked) == len(set(map(str, bench.engine.asked))) == 4


def test_a_setting_that_does_not_hold_leaves_no_ratio(bench: Bench) -> None:
    """Its P99 depends on how long one looks; the reason is given in its place."""
    bench.engine.answers[OFF.key].extend([not_sustainable(OFF)] * 9)
    found = bench.compare(OFF, LARGE)
    assert (found.kind, found.change) == (Kind.ONLY_B, None)
    assert found.sentence.startswith("Only B holds: B (HiCache ratio 6, ")
    assert "A (HiCache off) does not: time to first token only grew" in found.sentence
    turned = Bench(bench.root / "turned", bench.clock)
    turned.engine.answers[OFF.key].extend([measured(OFF, 0.1, error_rate=0.5)] * 9)
    found = turned.compare(LARGE, OFF)
    assert found.kind is Kind.ONLY_A
    assert "B (HiCache off) does not: breaks `errors <= 1%`" in found.sentence


def test_when_neither_holds_both_reasons_are_given(bench: Bench) -> None:
    """There is nothing to choose between."""
    bench.engine.answers[OFF.key].extend([not_sustainable(OFF)] * 9)
    bench.engine.answers[ON.key].extend([failed(ON)] * 9)
    found = bench.compare(OFF, ON)
    assert found.kind is Kind.NEITHER
    assert "A (HiCache off): time to first token only grew" in found.sentence
    assert "the engine failed with gpu_oom" in found.sentence


def test_another_figure_than_the_p99_is_compared_when_asked(bench: Bench) -> None:
    """Any that single requests tell, in its own words and units."""
    median = replace(OBJECTIVE, metric=read_objective("ttft.p50"))
    found = bench.compare(OFF, LARGE, objective=median)
    assert (found.kind, found.objective) == (Kind.LOWER, "ttft.p50")
    assert "than A in TTFT P50. B (HiCache ratio 6, write_through, kernel/page_first) 0." in found.sentence


def test_what_could_not_be_measured_is_not_decided(bench: Bench) -> None:
    """A client that is the bottleneck says nothing of the setting."""
    bench.engine.answers[OFF.key].extend([invalid(OFF)] * 99)
    found = bench.compare(OFF, ON)
    assert found.kind is Kind.UNDECIDED
    assert found.sentence == "Not decided: A could not be measured on fresh sessions."


def test_what_the_user_must_mend_ends_it(bench: Bench) -> None:
    """A flag that the engine does not know fails in every round; its last lines are shown."""
    bench.engine.answers[LARGE.key].append(failed(LARGE, FailureKind.BAD_FLAG))
    with pytest.raises(EngineError, match="last of the last lines"):
        bench.compare(OFF, LARGE)
    assert len(bench.engine.asked) == 2
