"""Verdicts on a real search (docs/evidence), under the objective that it had and under others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.load.record import read_records
from harness.store import TrialRecord, requests_path
from harness.summary import summarise
from tuning.objective import Constraint, Objective, front, read_metric, read_objective
from tuning.study import BASELINES
from tuning.verdict import Candidate, Kind, Verdict, decide

pytestmark = pytest.mark.contract

EVIDENCE = Path(__file__).parents[2] / "docs/evidence/h200-2026-11-30"
OFF, ON = BASELINES
SMALL, LARGE_WT, LARGE_WB = (
    "HiCache 18 GB, write_through_selective, kernel/page_first, fraction 0.12, page 1",
    "HiCache 24 GB, write_through, kernel/layer_first, fraction 0.12, page 64",
    "HiCache 24 GB, write_back, kernel/layer_first, fraction 0.12, page 64",
)


def recorded(root: Path, objective: Objective) -> list[TrialRecord]:
    """Lay the trials out as a study does, summarised as a trial does now."""
    records = []
    for path in sorted((EVIDENCE / "trials").glob("*.json")):
        record = TrialRecord.parse(json.loads(path.read_text(encoding="utf-8")), where=str(path))
        requests = requests_path(root, record)
        requests.parent.mkdir(parents=True)
        shutil.copy(EVIDENCE / f"requests/{path.stem}.parquet", requests)
        summary = summarise(read_records(requests), not_played=0, slos=objective.service_levels)
        records.append(record.model_copy(update={"summary": summary}))
    return records


def objective(text: str, *pareto: str) -> Objective:
    """Read an objective under the bound that the study had."""
    return Objective((Constraint.parse("errors <= 1%"),), 180.0, read_objective(text), tuple(map(read_metric, pareto)))


def decided(root: Path, text: str) -> Verdict:
    """Draw the verdict under another objective."""
    asked = objective(text)
    return decide(recorded(root, asked), root, baseline_key=OFF.key, objective=asked)


def test_the_verdict_that_was_published_is_drawn_again(tmp_path: Path) -> None:
    """Under the default: the sentence to the letter, and every candidate's figures."""
    published: dict[str, Any] = json.loads((EVIDENCE / "result.json").read_text(encoding="utf-8"))["verdict"]
    found = decided(tmp_path, "ttft.p99")
    assert (found.sentence, found.rule) == (published["sentence"], "")
    same = ("key", "p99_s", "p99_low_s", "p99_high_s", "against_baseline", "against_baseline_low", "ties_with_best")
    for mine, theirs in zip(found.candidates, published["candidates"], strict=True):
        assert [getattr(mine, name) for name in same] == pytest.approx([theirs[name] for name in same])
        assert (mine.value, mine.value_low) == (mine.p99_s, mine.p99_low_s)


@pytest.mark.parametrize(
    ("text", "best_first", "winner"),
    [
        ("tpot.p95", [LARGE_WT, LARGE_WB, SMALL, OFF.label, ON.label], SMALL),
        ("e2e.p90", [SMALL, LARGE_WT, LARGE_WB, OFF.label, ON.label], SMALL),
        ("goodput{ttft=500ms}", [SMALL, LARGE_WT, LARGE_WB, OFF.label, ON.label], SMALL),
        ("goodput{ttft=500ms,tpot=20ms}", [LARGE_WT, SMALL, LARGE_WB, OFF.label, ON.label], LARGE_WT),
        ("throughput.requests", [LARGE_WT, SMALL, LARGE_WB, OFF.label, ON.label], SMALL),
        ("throughput.tokens", [LARGE_WT, SMALL, LARGE_WB, OFF.label, ON.label], SMALL),
        ("ttft.p99{window=whole}", [LARGE_WT, SMALL, LARGE_WB, OFF.label, ON.label], SMALL),
    ],
)
def test_each_objective_ranks_the_settings_and_proves_a_winner(
    text: str, best_first: list[str], winner: str, tmp_path: Path
) -> None:
    """HiCache at its defaults is worse than off by every one of them; the rule is said where it decides."""
    found = decided(tmp_path, text)
    assert found.kind is Kind.BETTER
    assert [candidate.label for candidate in found.candidates] == best_first
    assert found.winner is not None
    assert found.winner.label == winner
    assert [candidate.surely_better for candidate in found.candidates] == [True, True, True, False, False]
    assert bool(found.rule) is (winner != best_first[0])


def test_requests_of_the_host_tier_have_no_baseline(tmp_path: Path) -> None:
    """Nothing is claimed against a setting that has none."""
    found = decided(tmp_path, "ttft.p99{tier=host}")
    assert found.kind is Kind.INCOMPARABLE
    assert OFF.label not in [candidate.label for candidate in found.candidates]


def test_the_throughput_counts_all_that_was_answered(tmp_path: Path) -> None:
    """Of 64 live sessions; the counted requests alone, over their span, are about half of it: 11.1 and 6.2 a second."""
    found = decided(tmp_path, "throughput.requests")
    rates = {candidate.label: candidate for candidate in found.candidates}
    assert rates[SMALL].value == pytest.approx(21.7, abs=0.1)
    assert rates[OFF.label].value == pytest.approx(10.7, abs=0.1)
    assert _width(rates[SMALL]) < 0.06
    assert rates[SMALL].against_baseline == pytest.approx(21.7 / 10.7 - 1, rel=0.02)


def test_the_front_trades_time_for_throughput(tmp_path: Path) -> None:
    """Of the search: 24 GB written back have the lowest P99, written through the most tokens; off takes no memory."""
    asked = objective("ttft.p99", "throughput")
    records = recorded(tmp_path, asked)
    assert [record.setting.label for record in front(records, asked)] == [LARGE_WB, LARGE_WT]
    with_memory = objective("ttft.p99", "throughput", "host_memory")
    assert [r.setting.label for r in front(records, with_memory)] == [LARGE_WB, LARGE_WT, OFF.label]


def _width(candidate: Candidate) -> float:
    assert candidate.value_low is not None
    assert candidate.value_high is not None
    return (candidate.value_high - candidate.value_low) / candidate.value
