"""What may be believed at the end of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.engine.failure import FailureKind
from harness.engine.setting import Setting
from harness.engine.spec import PUBLIC_PORT
from harness.statistics import Floats
from harness.store import Effective, TrialRecord
from tests.support.trials import (
    Bools,
    base_ttft_s,
    failed,
    interrupted,
    invalid,
    measured,
    not_sustainable,
    write_requests,
)
from tuning.objective import Constraint, Objective
from tuning.study import BASELINES
from tuning.verdict import Kind, Verdict, decide

SEEDS = (1001, 1002)
POOL_TOKENS = 6_000
OFF, ON = BASELINES
SMALL = Setting(hicache=True, hicache_ratio=3.0).canonical()
LARGE = Setting(hicache=True, hicache_ratio=6.0).canonical()
OBJECTIVE = Objective((Constraint.parse("errors <= 1%"),), worst_s=600.0)


class StudyOnDisk:
    """Writes the trials of one study with their requests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records: list[TrialRecord] = []

    def add(self, *records: TrialRecord) -> None:
        """Add trials without requests, numbered as they come."""
        for record in records:
            self.records.append(record.model_copy(update={"number": len(self.records)}))

    def searched(self, **p99s_s: float) -> None:
        """Add search trials by the names of the settings in this module."""
        self.add(*(measured(globals()[name], p99_s) for name, p99_s in p99s_s.items()))

    def confirm(self, setting: Setting, ttft_s: Floats, *, seed: int, cut: Bools | None = None, **changes: Any) -> None:
        """Add a confirmation of which each session played each turn; those of `cut` were not answered."""
        effective = Effective(
            device_pool_tokens=POOL_TOKENS,
            host_pool_tokens=round(POOL_TOKENS * (setting.hicache_ratio or 0)) or None,
            launch_phases_s={},
        )
        self.add(measured(setting, purpose="confirm", seed=seed, effective=effective, **changes))
        write_requests(self.root, self.records[-1], ttft_s, cut)

    def confirm_all(self, factors: Sequence[tuple[Setting, float]], **changes: Any) -> None:
        """Confirm settings that take this factor of the time with HiCache off, on both fresh seeds."""
        for seed in SEEDS:
            for setting, factor in factors:
                self.confirm(setting, base_ttft_s(seed) * factor, seed=seed, **changes)

    def verdict(self) -> Verdict:
        """Decide."""
        return decide(self.records, self.root, baseline_key=OFF.key, objective=OBJECTIVE)


@pytest.fixture
def study(tmp_path: Path) -> StudyOnDisk:
    """Make an empty study."""
    return StudyOnDisk(tmp_path)


def test_a_setting_that_beats_the_default_is_the_answer(study: StudyOnDisk) -> None:
    """Sentence, figures and launch command name the winner and its gain with an interval."""
    study.searched(OFF=1.0, ON=0.6, SMALL=0.4)
    study.confirm_all([(OFF, 1.0), (ON, 0.6), (SMALL, 0.4)])
    found = study.verdict()
    assert found.kind is Kind.BETTER
    assert found.winner is not None
    assert (found.winner.key, found.winner.trial_numbers) == (SMALL.key, (5, 8))
    assert found.winner.against_baseline == pytest.approx(-0.6)
    assert found.winner.against_baseline_low == pytest.approx(-0.6)
    assert found.winner.requests > 0
    assert found.sentence.startswith(f"{SMALL.label}: TTFT P99 ")
    assert "60% lower [60%, 60%] than HiCache off at SGLang's defaults" in found.sentence
    assert [candidate.key for candidate in found.candidates] == [SMALL.key, ON.key, OFF.key]


def test_the_launch_command_is_that_of_the_winner_on_the_public_port(study: StudyOnDisk) -> None:
    """It can be pasted: the port of the measurement is gone, and needed variables stand before it."""
    study.searched(OFF=1.0, SMALL=0.4)
    study.confirm_all([(OFF, 1.0), (SMALL, 0.4)], env={"A_VARIABLE": "two words"})
    command = study.verdict().launch_command
    assert command is not None
    assert command.startswith("env 'A_VARIABLE=two words' python -m sglang.launch_server")
    assert f"--port {PUBLIC_PORT} " in command
    assert "--hicache-ratio 3.0" in command


def test_of_settings_that_tie_the_least_host_memory_wins(study: StudyOnDisk) -> None:
    """A P99 that is 1 % lower is no reason to give away twice the host memory."""
    study.searched(OFF=1.0, SMALL=0.4, LARGE=0.39)
    study.confirm_all([(OFF, 1.0), (SMALL, 0.400), (LARGE, 0.396)])
    found = study.verdict()
    assert found.winner is not None
    assert (found.winner.key, found.winner.host_pool_tokens) == (SMALL.key, 18_000)
    assert [c.ties_with_best for c in found.candidates] == [True, True, False]
    assert found.sentence.endswith("; it ties with 1 more and takes the least host memory of them")


def test_a_setting_that_is_surely_slower_does_not_tie(study: StudyOnDisk) -> None:
    """A P99 that is 10 % lower in every session is worth the memory."""
    study.searched(OFF=1.0, SMALL=0.4, LARGE=0.36)
    study.confirm_all([(OFF, 1.0), (SMALL, 0.40), (LARGE, 0.36)])
    found = study.verdict()
    assert found.winner is not None
    assert found.winner.key == LARGE.key
    assert "ties" not in found.sentence


def test_a_tie_that_is_no_proof_against_the_baseline_does_not_take_the_win(study: StudyOnDisk) -> None:
    """The best is surely better than off; a smaller setting that ties with it may be no better than off."""
    study.searched(OFF=1.0, SMALL=0.8, LARGE=0.8)
    noise = np.random.default_rng(5)
    for seed in SEEDS:
        base = base_ttft_s(seed)
        study.confirm(OFF, base, seed=seed)
        study.confirm(LARGE, base * 0.8, seed=seed)
        study.confirm(SMALL, base * 0.8 * noise.lognormal(0, 0.25, base.shape), seed=seed)
    found = study.verdict()
    small = next(c for c in found.candidates if c.key == SMALL.key)
    assert small.ties_with_best
    assert not small.surely_better
    assert found.kind is Kind.BETTER
    assert found.winner is not None
    assert found.winner.key == LARGE.key


def test_hicache_does_not_help_when_off_is_as_good(study: StudyOnDisk) -> None:
    """Off takes no host memory, so it wins every tie."""
    study.searched(OFF=1.0, ON=1.0, SMALL=0.9)
    study.confirm_all([(OFF, 1.0), (ON, 1.005), (SMALL, 0.99)])
    found = study.verdict()
    assert found.kind is Kind.NO_HELP
    assert found.winner is not None
    assert found.winner.key == OFF.key
    assert found.sentence.startswith("HiCache does not help this workload: off at SGLang's defaults gives TTFT P99")


def test_hicache_does_not_help_when_nothing_is_surely_better(study: StudyOnDisk) -> None:
    """Where off itself breaks a bound, a setting is named all the same, without a claim."""
    study.searched(OFF=1.0, SMALL=1.0)
    noise = np.random.default_rng(3)
    for seed in SEEDS:
        base = base_ttft_s(seed)
        study.confirm(OFF, base, seed=seed, error_rate=0.5)
        study.confirm(SMALL, base * noise.lognormal(0, 0.3, base.shape), seed=seed)
    found = study.verdict()
    assert found.kind is Kind.NO_HELP
    assert found.sentence.startswith("no setting is surely better than HiCache off")


def test_there_is_no_ratio_to_a_baseline_that_did_not_sustain_the_load(study: StudyOnDisk) -> None:
    """Its P99 depends on how long one looks, so the sentence gives the reason in place of a gain."""
    study.add(not_sustainable(OFF))
    study.searched(ON=0.6, SMALL=0.4)
    for seed in SEEDS:
        study.add(not_sustainable(OFF, purpose="confirm", seed=seed))
        study.confirm(SMALL, base_ttft_s(seed), seed=seed)
    found = study.verdict()
    assert found.kind is Kind.BASELINE_UNSUSTAINED
    assert found.winner is not None
    assert (found.winner.key, found.winner.against_baseline) == (SMALL.key, None)
    assert "does not (time to first token only grew during the load)" in found.sentence


@pytest.mark.parametrize("confirmed", [(), (OFF,), (OFF, ON), (ON, SMALL)])
def test_without_baseline_and_best_measured_again_nothing_is_confirmed(
    study: StudyOnDisk, confirmed: tuple[Setting, ...]
) -> None:
    """The best so far is shown with its command, and said to rest on one trial."""
    study.searched(OFF=1.0, ON=0.6, SMALL=0.4)
    study.confirm_all([(setting, 1.0) for setting in confirmed])
    found = study.verdict()
    assert (found.kind, found.winner, found.candidates) == (Kind.UNCONFIRMED, None, ())
    assert found.sentence.startswith(
        f"not confirmed: best so far is {SMALL.label} with TTFT P99 0.400 s, from one trial"
    )
    assert found.launch_command is not None
    assert "--hicache-ratio 3.0" in found.launch_command


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([failed(OFF), failed(ON, FailureKind.CRASH)], "the engine failed with gpu_oom (exit code 1): it said so"),
        ([measured(OFF, error_rate=0.5), measured(ON, error_rate=0.2)], "2 of 2 trials broke `errors <= 1%`"),
        ([not_sustainable(OFF), not_sustainable(ON)], "time to first token only grew during the load"),
        ([failed(OFF), failed(ON), interrupted(SMALL)], "the engine failed with gpu_oom (exit code 1): it said so"),
    ],
)
def test_when_nothing_is_feasible_the_reason_is_given(study: StudyOnDisk, records: list[TrialRecord], why: str) -> None:
    """Either the engine's words, or the bound that most trials broke."""
    study.add(*records)
    found = study.verdict()
    assert (found.kind, found.launch_command) == (Kind.NONE_FEASIBLE, None)
    assert found.sentence.startswith(f"no setting of 2 is feasible: {why}")


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([], "nothing was measured; resume with more budget"),
        ([interrupted(OFF)], "nothing was measured: stopped by the user; resume with more budget"),
        ([invalid(OFF), invalid(ON)], "nothing was measured: the load process was late by 80 ms (P99); the client was"),
    ],
)
def test_what_was_cut_off_or_at_fault_is_no_verdict_on_the_settings(
    study: StudyOnDisk, records: list[TrialRecord], sentence: str
) -> None:
    """A stopped study has not found that nothing is feasible."""
    study.add(*records)
    found = study.verdict()
    assert found.kind is Kind.UNCONFIRMED
    assert found.sentence.startswith(sentence)


def test_the_figures_of_the_search_choose_who_is_confirmed_and_nothing_else(study: StudyOnDisk, tmp_path: Path) -> None:
    """A lucky search trial leaves no trace in the verdict (design rule 10)."""
    confirmed = [(OFF, 1.0), (SMALL, 0.5), (LARGE, 0.3)]
    study.searched(OFF=1.0, SMALL=0.5, LARGE=0.3)
    study.confirm_all(confirmed)
    lucky = StudyOnDisk(tmp_path / "lucky")
    lucky.searched(OFF=0.2, SMALL=0.01, LARGE=0.9)
    lucky.confirm_all(confirmed)
    assert lucky.verdict() == study.verdict()
    winner = study.verdict().winner
    assert winner is not None
    fresh = np.concatenate([base_ttft_s(seed).ravel() * 0.3 for seed in SEEDS])
    assert winner.p99_s == pytest.approx(float(np.quantile(fresh, 0.99)), rel=1e-6)


def test_requests_that_one_side_did_not_answer_are_left_out_of_the_comparison(study: StudyOnDisk) -> None:
    """A baseline that lost its slowest requests gains nothing by it."""
    study.searched(OFF=1.0, SMALL=0.5)
    for seed in SEEDS:
        base = base_ttft_s(seed)
        study.confirm(OFF, base, seed=seed, cut=base > np.quantile(base, 0.9))
        study.confirm(SMALL, base * 0.5, seed=seed)
    winner = study.verdict().winner
    assert winner is not None
    assert winner.against_baseline == pytest.approx(-0.5)


@pytest.mark.parametrize("first", [invalid(OFF), interrupted(OFF), failed(OFF, FailureKind.HANG)])
def test_a_trial_that_was_tried_again_counts_by_its_second_try(study: StudyOnDisk, first: TrialRecord) -> None:
    """A spoilt measurement of the baseline must not read as a baseline that does not sustain the load."""
    study.searched(OFF=1.0, SMALL=0.5)
    study.add(first.model_copy(update={"purpose": "confirm", "seed": SEEDS[0]}))
    study.confirm_all([(OFF, 1.0), (SMALL, 0.5)])
    found = study.verdict()
    assert found.kind is Kind.BETTER
    assert {len(candidate.trial_numbers) for candidate in found.candidates} == {2}


def test_settings_are_compared_over_the_seeds_that_all_of_them_played(study: StudyOnDisk) -> None:
    """A second round that only one of them came to must not help it, even if its sessions were easy."""
    study.searched(OFF=1.0, SMALL=0.5, LARGE=0.4)
    base = base_ttft_s(SEEDS[0])
    for setting, factor in ((OFF, 1.0), (SMALL, 0.5), (LARGE, 0.4)):
        study.confirm(setting, base * factor, seed=SEEDS[0])
    study.confirm(SMALL, base_ttft_s(SEEDS[1]) * 0.01, seed=SEEDS[1])
    found = study.verdict()
    assert found.winner is not None
    assert found.winner.key == LARGE.key
    assert {len(candidate.trial_numbers) for candidate in found.candidates} == {1}


def test_a_setting_that_breaks_a_bound_when_measured_again_is_out(study: StudyOnDisk) -> None:
    """One of its two confirmations is enough."""
    study.searched(OFF=1.0, SMALL=0.5, LARGE=0.3)
    study.confirm_all([(OFF, 1.0), (SMALL, 0.5)])
    for seed, error_rate in zip(SEEDS, (0.0, 0.02), strict=True):
        study.confirm(LARGE, base_ttft_s(seed) * 0.3, seed=seed, error_rate=error_rate)
    found = study.verdict()
    assert [candidate.key for candidate in found.candidates] == [SMALL.key, OFF.key]


def test_when_all_break_a_bound_when_measured_again_none_is_feasible(study: StudyOnDisk) -> None:
    """More budget would not help, so it is not asked for."""
    study.searched(OFF=1.0, SMALL=0.5)
    study.confirm_all([(OFF, 1.0), (SMALL, 0.5)], error_rate=0.02)
    found = study.verdict()
    assert found.kind is Kind.NONE_FEASIBLE
    assert found.sentence == "no setting of 2 is feasible: 4 of 4 trials broke `errors <= 1%`, when measured again"


def test_one_session_gives_no_interval_and_no_gain(study: StudyOnDisk) -> None:
    """Without an interval nothing is better, half the time or not."""
    study.searched(OFF=1.0, SMALL=0.5)
    for setting, factor in ((OFF, 1.0), (SMALL, 0.5)):
        study.confirm(setting, base_ttft_s(1)[:1] * factor, seed=SEEDS[0])
    found = study.verdict()
    assert found.kind is Kind.NO_HELP
    assert found.winner is not None
    assert (found.winner.p99_low_s, found.winner.against_baseline_low) == (None, None)
