"""The search for a limit over trials: what is probed, what is kept on disk, and what is said at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.engine.attach import AttachedEngine, Attachment
from harness.engine.handle import LaunchPlan
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.errors import EngineError, LoadError
from harness.kept import KeptEngine
from harness.lab import Lab
from harness.load.job import ApiName
from harness.store import Purpose, TrialRecord, folder_of, write_trial
from harness.telemetry import NvmlUnavailable
from scenarios.plan import Plan
from tests.support.simulated_search import QuietWatch
from tests.support.trials import failed, interrupted, invalid, measured, not_sustainable
from tuning.limit import Bisection, Bracket
from tuning.limit_finder import LimitFinder, ProbeResult
from tuning.objective import Constraint, Objective

SETTING = Setting(hicache=True).canonical()
LEVEL = Objective((Constraint.parse("ttft.p99 <= 2s"), Constraint.parse("errors <= 1%")), worst_s=600)
CAPACITY_PER_S = 5.0

Answer = Callable[[float, int], TrialRecord]


def queueing(rate_per_s: float, _seed: int) -> TrialRecord:
    """Answer as an engine does whose TTFT grows with its load, and diverges beyond its capacity."""
    if rate_per_s >= 2 * CAPACITY_PER_S:
        return not_sustainable(SETTING)
    return measured(SETTING, 2.0 * rate_per_s / CAPACITY_PER_S)


class LimitWatchQuiet(QuietWatch):
    """Keeps what is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.probes: list[ProbeResult] = []

    def probe_begins(self, number: int, rate_per_s: float, known: Bracket) -> None:
        """Show nothing."""

    def probe_ends(self, probe: ProbeResult, seconds: float) -> None:
        """Keep the probe."""
        self.probes.append(probe)


class EndsOnce(AttachedEngine):
    """An engine that tells when it is ended."""

    def __init__(self, ended: list[str]) -> None:
        super().__init__(Attachment(url="http://127.0.0.1:1"), Path("engine.log"))
        self._ended = ended

    def stop(self, *, term_s: float = 30.0, must_hurry: Callable[[], bool] = lambda: False) -> None:
        """Tell it."""
        self._ended.append("ended")


class Bench:
    """One folder, in which limits are searched life after life."""

    def __init__(self, root: Path) -> None:
        self.root, self.stop_after = root, 10**6
        self.answer: Answer = queueing
        self.watch, self.rates = LimitWatchQuiet(), list[float]()

    def finder(self, **changes: Any) -> LimitFinder:
        """Begin a life."""
        lab = Lab(
            root=self.root,
            spec=EngineSpec(python=Path("python"), model="Org/Name", sglang_version="0.5.15"),
            watch=self.watch,
            should_stop=lambda: len(self.rates) >= self.stop_after,
            must_hurry=lambda: False,
            api=ApiName.CHAT,
            load_limit_s=600,
            warm_up_tokens=100,
            device=NvmlUnavailable("no GPU"),
        )
        how = Bisection(start_per_s=1.0, least_per_s=0.1, most_per_s=50.0, precision=0.1, seed=7)
        values = {"how": how, "budget_s": None} | changes
        return LimitFinder(
            lab=lab,
            setting=SETTING,
            objective=LEVEL,
            watch=self.watch,
            make_plan=lambda rate, seed: Plan("simulated", seed, None, (), rate),
            measure=self._measure,
            **values,
        )

    def _measure(self, lab: Lab, *, number: int, purpose: Purpose, setting: Setting, plan: Plan) -> TrialRecord:
        assert plan.rate_per_s is not None
        self.rates.append(plan.rate_per_s)
        found = self.answer(plan.rate_per_s, plan.seed)
        record = found.model_copy(
            update={"number": number, "purpose": purpose, "seed": plan.seed, "rate_per_s": plan.rate_per_s}
        )
        folder = folder_of(lab.root, number, purpose)
        folder.mkdir(parents=True)
        write_trial(record, folder)
        return record


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Give an empty folder."""
    return Bench(tmp_path)


def test_the_limit_is_found_and_said(bench: Bench) -> None:
    """The highest rate within the level is found, confirmed, and named in one sentence with its figures."""
    limit = bench.finder().run()
    assert limit.ended == "found"
    assert limit.meets_per_s is not None
    assert limit.misses_per_s is not None
    assert CAPACITY_PER_S / 1.11 <= limit.meets_per_s <= CAPACITY_PER_S < limit.misses_per_s
    assert f"{limit.meets_per_s:g} sessions/s keep ttft.p99 <= 2s and errors <= 1%" in limit.sentence
    assert "not confirmed" not in limit.sentence
    assert [p.rate_per_s for p in limit.probes] == sorted(p.rate_per_s for p in limit.probes)


def test_one_engine_serves_all_probes(bench: Bench) -> None:
    """Each is told that its setting follows, and what the last one has kept is ended, however the search ends."""
    bench.answer = lambda *_: failed(SETTING)
    finder, ended = bench.finder(), list[str]()
    finder.lab.kept = KeptEngine(EndsOnce(ended), LaunchPlan(()), SETTING, None, None)
    with pytest.raises(EngineError):
        finder.run()
    assert finder.lab.followed_by == SETTING
    assert ended == ["ended"]


def test_a_stopped_search_goes_on_without_probing_again(bench: Bench) -> None:
    """Two lives together probe exactly what one would have probed."""
    whole = Bench(bench.root / "whole")
    whole.finder().run()
    bench.stop_after = 3
    assert bench.finder().run().ended == "interrupted"
    bench.stop_after = 10**6
    assert bench.finder().run().ended == "found"
    assert bench.rates == whole.rates


def test_an_interrupted_probe_says_nothing(bench: Bench) -> None:
    """The rate of a probe that the user cut is probed again."""
    answers = [interrupted(SETTING)]
    bench.answer = lambda rate, seed: answers.pop() if answers else queueing(rate, seed)
    assert bench.finder().run().ended == "found"
    assert bench.rates[:2] == [1.0, 1.0]


def test_a_diverging_load_misses_the_level(bench: Bench) -> None:
    """What is not sustained has no P99 that could count, and its reason is kept."""
    limit = bench.finder(how=Bisection(20.0, 0.1, 50.0, 0.1, 7)).run()
    first = bench.watch.probes[0]
    assert (first.meets, first.why_not) == (False, "time to first token only grew during the load")
    assert limit.ended == "found"


def test_a_client_that_cannot_keep_up_ends_the_search(bench: Bench) -> None:
    """A rate at which the client is the bottleneck twice is no answer about the engine."""
    bench.answer = lambda *_: invalid(SETTING)
    with pytest.raises(LoadError, match="client was the bottleneck"):
        bench.finder().run()
    assert bench.rates == [1.0, 1.0]


def test_an_engine_that_does_not_start_ends_the_search(bench: Bench) -> None:
    """No rate mends a launch; the engine's last lines are shown."""
    bench.answer = lambda *_: failed(SETTING)
    with pytest.raises(EngineError, match="last of the last lines"):
        bench.finder().run()
    assert len(bench.rates) == 1


def test_a_budget_ends_between_two_probes(bench: Bench) -> None:
    """A probe that no longer fits is not begun, and what is known is said."""
    limit = bench.finder(budget_s=20.0).run()
    assert limit.ended == "budget"
    assert len(limit.probes) == 1
    assert "no rate that was probed misses it" in limit.sentence


def test_levels_that_nothing_keeps_or_misses_are_said(bench: Bench) -> None:
    """Both ends of the allowed rates are answers."""
    bench.answer = lambda *_: measured(SETTING, 9.0)
    none = bench.finder().run()
    assert none.ended == "none kept"
    assert none.sentence.startswith("No rate that was probed keeps ttft.p99 <= 2s and errors <= 1%, not even 0.125")
    easy = Bench(bench.root / "easy")
    easy.answer = lambda *_: measured(SETTING, 0.1)
    every = easy.finder().run()
    assert every.ended == "none missed"
    assert every.meets_per_s == 50.0
