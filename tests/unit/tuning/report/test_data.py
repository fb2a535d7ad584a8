"""The answer of a study as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.engine.failure import FailureKind
from harness.engine.setting import Setting
from harness.store import Outcome, Purpose, TrialRecord
from tests.support.study_data import OFF, ON, PROMPT_TOKENS, RATIO_3, Made, StudyMaker
from tests.support.trials import measured
from tuning.objective import Objective, read_objective
from tuning.report import StudyResult, TrialRow, study_result
from tuning.report.rows import leader, trial_rows
from tuning.verdict import Kind, Verdict


def result_of(made: Made) -> StudyResult:
    """Gather the answer of `made`."""
    return study_result(made.root, made.study, made.records, made.verdict, made.objective)


def row_of(made: Made, number: int) -> TrialRow:
    """Find the row of one trial."""
    return next(row for row in result_of(made).trials if row.number == number)


def test_result_survives_json(confirmed: Made) -> None:
    """What is written as JSON reads back as the same result, so programs may rely on the model."""
    result = result_of(confirmed)
    assert StudyResult.model_validate_json(result.model_dump_json()) == result


def test_json_has_what_a_program_asks_for(confirmed: Made) -> None:
    """The launch command, the verdict and the counts stand where they are looked for."""
    data = json.loads(result_of(confirmed).model_dump_json())
    assert data["schema_version"] == 2
    assert data["study"] == "demo"
    assert data["verdict"]["kind"] == "better"
    assert data["launch_command"] == confirmed.verdict.launch_command
    assert data["outcomes"] == {"failed": 1, "invalid": 1, "measured": 13, "not sustainable": 1}
    assert data["scenario"] == "cpu-chat"
    assert data["scenario_fingerprint"] == confirmed.study.scenario_fingerprint
    assert len(data["trials"]) == len(confirmed.records)


def test_best_first_and_groups_apart(confirmed: Made) -> None:
    """The search stands best first, then the confirmation best first, then what may not win."""
    rows = trial_rows(confirmed.records, confirmed.objective, confirmed.verdict)
    groups = [(row.feasible, row.purpose if row.feasible else "") for row in rows]
    assert groups == [(True, "search")] * 4 + [(True, "confirm")] * 8 + [(False, "")] * 4
    for purpose in ("search", "confirm"):
        p99s = [row.ttft.p99_s for row in rows if row.feasible and row.purpose == purpose and row.ttft]
        assert p99s == sorted(p99s)


def test_purposes_stand_in_their_order_and_each_best_first_by_the_objective() -> None:
    """Where more is better the most stands first, and what played other sessions never stands between."""
    objective = Objective((), worst_s=600.0, metric=read_objective("throughput.tokens"))
    verdict = Verdict(kind=Kind.UNCONFIRMED, sentence="", objective=objective.metric.text)
    given: tuple[tuple[Purpose, float], ...] = (
        ("stress", 900.0), ("confirm", 50.0), ("search", 70.0), ("compare", 800.0), ("confirm", 60.0), ("search", 90.0),
    )  # fmt: skip
    records = [
        answering(measured(Setting(hicache=True, page_size=2**n), number=n, purpose=purpose), rate)
        for n, (purpose, rate) in enumerate(given)
    ]
    assert [row.number for row in trial_rows(records, objective, verdict)] == [5, 2, 4, 1, 3, 0]
    assert leader(records, objective, verdict) == records[5].setting.key


def answering(record: TrialRecord, tokens_per_s: float) -> TrialRecord:
    """Give a measured trial a throughput."""
    assert record.summary is not None
    return record.model_copy(
        update={"summary": record.summary.model_copy(update={"output_tokens_per_s": tokens_per_s})}
    )


def test_a_load_that_was_not_sustained_has_no_p99(confirmed: Made) -> None:
    """Its P99 is never given as a number that could be compared (design rule 12)."""
    row = row_of(confirmed, 7)
    assert row.outcome is Outcome.NOT_SUSTAINABLE
    assert (row.ttft, row.whole_run_p99_s, row.first_turns_p99_s) == (None, None, None)
    assert row.reason == "12 counted requests were unanswered when the time limit came"
    assert row.why == f"{row.reason}; {row.requests_per_s:.2f} requests/s were answered"


def test_a_broken_constraint_is_named(confirmed: Made) -> None:
    """A measured trial that may not win says which constraint it broke, and keeps its P99."""
    row = row_of(confirmed, 4)
    assert (row.feasible, row.reason) == (False, "breaks `headroom.host >= 1GiB`")
    assert row.ttft is not None


def test_a_failure_is_classed_and_quoted(confirmed: Made) -> None:
    """A failed trial has its class and the engine's last lines; what was not seen is None."""
    row = row_of(confirmed, 3)
    assert row.failure is FailureKind.HOST_MEMORY_REFUSED
    assert row.engine_said[0] == "Traceback (most recent call last):"
    assert (row.error_rate, row.reload_tokens, row.host_headroom_bytes, row.ok) == (None, None, None, None)


def test_hits_by_tier_come_from_the_counters(confirmed: Made) -> None:
    """Shares are of the prompt tokens of the load; a tier that the engine does not tell is None, not zero."""
    on, off = row_of(confirmed, 1), row_of(confirmed, 0)
    assert on.device_hit_rate == pytest.approx(52_000 / PROMPT_TOKENS)
    assert on.host_hit_rate == pytest.approx(70_000 / PROMPT_TOKENS)
    assert on.reload_tokens == 70_000
    assert (off.host_hit_rate, off.reload_tokens) == (None, None)


def test_the_winner_is_marked(confirmed: Made) -> None:
    """All trials of the confirmed winner are marked, and no other."""
    marked = {row.key for row in result_of(confirmed).trials if row.winner}
    assert marked == {RATIO_3.key}


def test_nothing_is_marked_without_a_confirmation(unconfirmed: Made) -> None:
    """The best so far is not a winner, though it leads."""
    assert unconfirmed.verdict.kind is Kind.UNCONFIRMED
    assert not any(row.winner for row in result_of(unconfirmed).trials)
    assert leader(unconfirmed.records, unconfirmed.objective, unconfirmed.verdict) == RATIO_3.key


def test_nobody_leads_when_nothing_is_feasible(infeasible: Made) -> None:
    """A study without a feasible setting still has a result."""
    assert leader(infeasible.records, infeasible.objective, infeasible.verdict) is None
    assert result_of(infeasible).launch_command is None


def test_a_study_without_trials_has_a_result(tmp_path: Path) -> None:
    """A search that was stopped at once still answers."""
    assert result_of(StudyMaker(tmp_path).made()).trials == ()


def test_a_baseline_that_wins_is_the_winner(tmp_path: Path) -> None:
    """When HiCache does not help, the baseline is marked."""
    maker = StudyMaker(tmp_path)
    maker.measured(OFF, ttft_s=0.4)
    maker.measured(ON, ttft_s=0.4)
    maker.confirm([(OFF, 0.4), (ON, 0.4)])
    made = maker.made()
    assert made.verdict.kind is Kind.NO_HELP
    assert {row.label for row in result_of(made).trials if row.winner} == {"HiCache off"}
