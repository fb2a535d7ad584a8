"""Verdicts on other objectives than the TTFT P99."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.engine.memory import SeenMemory
from harness.engine.setting import Setting
from harness.load.record import RequestRecord, Status, read_records, write_records
from harness.statistics import Floats
from harness.store import REQUESTS_FILE, Effective, TrialRecord, folder_of
from harness.summary import summarise
from scenarios.plan import Phase
from tests.support.trials import measured, not_sustainable
from tuning.objective import Constraint, Objective, read_metric, read_objective
from tuning.study import BASELINES
from tuning.verdict import Candidate, Kind, Verdict, decide

S = 10**9
SESSIONS, TURNS, SLOTS = 60, 5, 10
SEEDS = (1001, 1002)
OFF, ON = BASELINES
SMALL = Setting(hicache=True, hicache_ratio=3.0).canonical()
LARGE = Setting(hicache=True, hicache_ratio=6.0).canonical()
TOKENS = 20


class Study:
    """Confirmed trials on disk, decided under one objective."""

    def __init__(self, root: Path, objective: str, *constraints: str, pareto: tuple[str, ...] = ()) -> None:
        self.root = root
        self.records: list[TrialRecord] = []
        bounds = tuple(map(Constraint.parse, constraints))
        self.objective = Objective(bounds, 600.0, read_objective(objective), tuple(map(read_metric, pareto)))

    def confirm(self, setting: Setting, ttft: float, tpot: float = 1.0, *, host: bool = True, **changes: Any) -> None:
        """Search and confirm a setting that takes these factors of the time that others take."""
        for purpose, seed in (("search", 1), *(("confirm", seed) for seed in SEEDS)):
            tier = 50 if setting.hicache and host else 0
            pool = round(1000 * (setting.hicache_ratio or 0)) or None
            record = measured(setting, number=len(self.records), purpose=purpose, seed=seed).model_copy(update=changes)
            effective = Effective(device_pool_tokens=1000, host_pool_tokens=pool, launch_phases_s={})
            folder = folder_of(self.root, record.number, record.purpose)
            folder.mkdir(parents=True)
            load = _load(seed, ttft, tpot, tier, np.random.default_rng([seed, record.number]))
            write_records(load, folder / REQUESTS_FILE)
            summary = summarise(read_records(folder / REQUESTS_FILE), not_played=0, slos=self.objective.service_levels)
            update = {"summary": summary, "effective": effective}
            self.records.append(record.model_copy(update=update))

    def verdict(self) -> Verdict:
        """Decide."""
        return decide(self.records, self.root, baseline_key=OFF.key, objective=self.objective)

    def candidate(self, setting: Setting) -> Candidate:
        """Return what the verdict says of a setting."""
        return next(each for each in self.verdict().candidates if each.key == setting.key)


def _load(seed: int, ttft: float, tpot: float, host: int, noise: np.random.Generator) -> list[RequestRecord]:
    """Play the sessions of a seed, SLOTS at a time, with little noise of the trial's own."""
    base = np.random.default_rng(seed)
    luck: Floats = base.lognormal(0, 0.2, (SESSIONS, 1)) * base.lognormal(0, 0.2, (SESSIONS, TURNS))
    first_s = ttft * luck * noise.lognormal(0, 0.02, luck.shape)
    reply_s = 0.01 * (TOKENS - 1) * tpot * luck
    free_s, found = np.linspace(0, 0.5, SLOTS), []
    for session in range(SESSIONS):
        slot = int(np.argmin(free_s))
        for turn in range(TURNS):
            due_ns = round(free_s[slot] * S)
            first_ns = due_ns + round(first_s[session, turn] * S)
            free_s[slot] += first_s[session, turn] + reply_s[session, turn]
            last_ns = round(free_s[slot] * S)
            times = (due_ns, due_ns, last_ns, first_ns, last_ns)
            tokens: dict[str, Any] = {"output_tokens": TOKENS, "cached_tokens": host, "host_cached_tokens": host}
            found.append(RequestRecord(f"s{session}", turn, Phase.COUNTED, Status.OK, *times, **tokens))
    return found


def test_the_best_of_each_objective_wins(tmp_path: Path) -> None:
    """LARGE has the quicker first token, SMALL the quicker tokens after it; each wins by its own."""
    for objective, winner in (("ttft.p95", LARGE), ("tpot.p95", SMALL)):
        study = Study(tmp_path / objective, objective)
        study.confirm(OFF, 1.0)
        study.confirm(SMALL, 0.8, 0.5)
        study.confirm(LARGE, 0.4, 0.9)
        found = study.verdict()
        assert (found.kind, found.objective) == (Kind.BETTER, objective)
        assert found.winner is not None
        assert found.winner.key == winner.key
        assert found.winner.surely_better
        assert f"{read_metric(objective).title} 0." in found.sentence
        assert "lower [" in found.sentence


def test_a_quicker_setting_answers_more(tmp_path: Path) -> None:
    """Half the time for each turn is twice the throughput, and the gain is said to be higher."""
    study = Study(tmp_path, "throughput.requests")
    study.confirm(OFF, 1.0)
    study.confirm(SMALL, 0.5, 0.5)
    found, small, off = study.verdict(), study.candidate(SMALL), study.candidate(OFF)
    assert found.kind is Kind.BETTER
    assert small.against_baseline == pytest.approx(1.0, abs=0.05)
    assert small.value == pytest.approx(2 * off.value, rel=0.05)
    assert small.difference == pytest.approx(small.value - off.value, rel=0.05)
    assert "requests/s [" in found.sentence
    assert "% higher [" in found.sentence
    assert small.p99_s < off.p99_s, "the TTFT P99 is told whatever the objective"


def test_less_throughput_is_no_gain(tmp_path: Path) -> None:
    """The direction is that of the metric."""
    study = Study(tmp_path, "throughput.tokens")
    study.confirm(OFF, 1.0)
    study.confirm(SMALL, 2.0, 2.0)
    found = study.verdict()
    assert found.kind is Kind.NO_HELP
    assert not study.candidate(SMALL).surely_better
    assert found.winner is not None
    assert found.winner.key == OFF.key


def test_a_goodput_is_compared_by_its_share(tmp_path: Path) -> None:
    """All are in time with SMALL, about half without."""
    study = Study(tmp_path, "goodput{ttft=1s}")
    study.confirm(OFF, 1.0)
    study.confirm(SMALL, 0.3)
    small = study.candidate(SMALL)
    assert study.verdict().kind is Kind.BETTER
    assert (small.value, small.value_low) == (1.0, 1.0)
    assert small.against_baseline == pytest.approx(1.0, abs=0.2)


def test_a_baseline_that_never_meets_the_level_is_told_as_a_difference(tmp_path: Path) -> None:
    """There is no ratio to zero, and a proof all the same."""
    study = Study(tmp_path, "goodput{ttft=200ms}")
    study.confirm(OFF, 1.0)
    study.confirm(SMALL, 0.1)
    found, small = study.verdict(), study.candidate(SMALL)
    assert found.kind is Kind.BETTER
    assert (small.against_baseline, small.against_baseline_low) == (None, None)
    assert small.difference == pytest.approx(small.value)
    assert " against 0.0% with HiCache off at SGLang's defaults, a difference of [" in found.sentence


@pytest.mark.parametrize("objective", ["throughput.requests", "e2e.p90"])
def test_of_settings_that_tie_the_least_host_memory_is_recommended_by_a_stated_rule(
    tmp_path: Path, objective: str
) -> None:
    """The very best is named where another one is recommended."""
    study = Study(tmp_path, objective)
    study.confirm(OFF, 1.0)
    study.confirm(SMALL, 0.5, 0.5)
    study.confirm(LARGE, 0.495, 0.495)
    found = study.verdict()
    assert found.winner is not None
    assert [candidate.key for candidate in found.candidates] == [LARGE.key, SMALL.key, OFF.key]
    assert found.winner.key == SMALL.key
    assert f"more than 2% worse than the best ({LARGE.label}: " in found.rule
    assert "ties with 1 more and takes the least host memory of them" in found.sentence


def test_a_setting_that_is_surely_worse_by_more_than_the_rule_allows_does_not_tie(tmp_path: Path) -> None:
    """A tenth of the throughput is worth the memory."""
    study = Study(tmp_path, "throughput.tokens")
    study.confirm(OFF, 1.0)
    study.confirm(SMALL, 0.55, 0.55)
    study.confirm(LARGE, 0.5, 0.5)
    found = study.verdict()
    assert found.winner is not None
    assert (found.winner.key, found.rule) == (LARGE.key, "")
    assert not study.candidate(SMALL).ties_with_best


def test_a_baseline_without_such_requests_is_not_compared_with(tmp_path: Path) -> None:
    """HiCache off serves nothing from the host."""
    study = Study(tmp_path, "ttft.p99{tier=host}")
    study.confirm(OFF, 1.0)
    study.confirm(SMALL, 0.5)
    found = study.verdict()
    assert found.kind is Kind.INCOMPARABLE
    assert found.winner is not None
    assert (found.winner.key, found.winner.difference) == (SMALL.key, None)
    assert found.sentence.endswith("; HiCache off at SGLang's defaults has no value to compare it with")


def test_a_bound_on_another_metric_keeps_the_best_from_winning(tmp_path: Path) -> None:
    """The quickest misses the bound on TPOT."""
    study = Study(tmp_path, "ttft.p99", "tpot.p99 <= 12ms", "goodput{ttft=5s,tpot=60ms} >= 99%")
    study.confirm(OFF, 1.0, 0.5)
    study.confirm(SMALL, 0.6, 0.5)
    study.confirm(LARGE, 0.2, 2.0)
    found = study.verdict()
    assert found.winner is not None
    assert found.winner.key == SMALL.key
    assert study.objective.broken(study.records[-1]) == ["tpot.p99 <= 12ms"]


def test_an_unsustained_baseline_is_told_with_its_rate(tmp_path: Path) -> None:
    """Its latencies depend on how long one looks, what it answered does not."""
    study = Study(tmp_path, "ttft.p99")
    study.confirm(SMALL, 0.5)
    study.records += [not_sustainable(OFF, number=9, purpose="confirm", seed=seed) for seed in SEEDS]
    found = study.verdict()
    assert found.kind is Kind.BASELINE_UNSUSTAINED
    said = "does not (time to first token only grew during the load) and answers 10.00 requests/s"
    assert said in found.sentence


def test_when_no_setting_sustains_the_load_the_most_that_was_answered_is_told(tmp_path: Path) -> None:
    """It is what a user may plan with."""
    study = Study(tmp_path, "ttft.p99")
    study.records += [not_sustainable(OFF), not_sustainable(SMALL)]
    assert study.verdict().sentence.endswith("only grew during the load; at most 10.00 requests/s were answered")


def test_a_pareto_search_lists_the_trade_offs_and_recommends_one(tmp_path: Path) -> None:
    """Off takes no memory, LARGE is the quickest, and nothing speaks for ON."""
    study = Study(tmp_path, "ttft.p99", pareto=("host_memory",))
    for setting, factor, gib in ((OFF, 1.0, 0), (ON, 0.8, 9), (SMALL, 0.7, 3), (LARGE, 0.3, 6)):
        study.confirm(setting, factor, seen=SeenMemory(host_pool_bytes=gib * 2**30))
    found = study.verdict()
    assert [point.key for point in found.front] == [LARGE.key, SMALL.key, OFF.key]
    assert [point.values["host_memory"] for point in found.front] == [6 * 2**30, 3 * 2**30, 0]
    assert found.winner is not None
    assert found.winner.key == LARGE.key
    assert Verdict.model_validate_json(found.model_dump_json()) == found
