"""The answer of a study as data: what `--json` prints and what result.json holds.

History of the format (`schema_version` of result.json):
    1  first version
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from harness.engine.failure import FailureKind
from harness.environment import Environment
from harness.metrics import Latency, Slo
from harness.store import Outcome, Purpose, TrialRecord
from harness.telemetry import CacheDelta
from scenarios.strict import StrictModel
from tuning.config import StudyFile
from tuning.objective import LAUNCHED, Objective
from tuning.report.costs import Cost, costs
from tuning.report.detail import Detail, details
from tuning.report.played import played
from tuning.report.remarks import remarks
from tuning.verdict import Verdict

SCHEMA_VERSION = 1
PURPOSES = get_args(Purpose)


class TrialRow(StrictModel):
    """One trial as it stands in a table. None means that it was not seen, never zero."""

    number: int
    purpose: Purpose
    label: str
    key: str
    hicache: bool
    seed: int
    winner: bool
    """Whether its setting is the study's confirmed winner."""
    outcome: Outcome
    feasible: bool
    reason: str
    """Why it may not win or what was odd, in one sentence; empty without remark."""
    failure: FailureKind | None
    engine_said: tuple[str, ...]
    """The last lines of the engine's log, when it failed."""
    ttft: Latency | None
    """Of the steady window; None when it may not be compared (design rule 12)."""
    whole_run_p99_s: float | None
    first_turns_p99_s: float | None
    ok: int | None
    counted: int | None
    cut: int | None
    error_rate: float | None
    device_hit_rate: float | None
    host_hit_rate: float | None
    storage_hit_rate: float | None
    """Shares of the prompt tokens, from the engine's counters."""
    reload_tokens: int | None
    device_headroom_bytes: int | None
    host_headroom_bytes: int | None
    device_pool_tokens: int | None
    host_pool_tokens: int | None
    duration_s: float


class StudyResult(StrictModel):
    """result.json."""

    schema_version: int = SCHEMA_VERSION
    study: str
    verdict: Verdict
    launch_command: str | None
    constraints: tuple[str, ...]
    outcomes: dict[Outcome, int]
    """Trials by how they ended."""
    trials: tuple[TrialRow, ...]
    """Best first; those that may not win last."""
    details: tuple[Detail, ...] = ()
    """Both baselines and the winner, or the best so far: every metric by turn, tier and prompt length."""
    costs: tuple[Cost, ...] = ()
    """Of the same settings: what they leave free, and what their reloads cost."""
    remarks: tuple[str, ...]
    """What a reader must know before believing the figures."""
    scenario: str
    scenario_fingerprint: str
    environment: Environment


def study_result(
    root: Path,
    study: StudyFile,
    records: Sequence[TrialRecord],
    verdict: Verdict,
    objective: Objective,
    *,
    slo: Slo | None = None,
) -> StudyResult:
    """Gather the answer of the study in `root`; with a service level, the goodput under it too."""
    settings = played(root, records, leader(records, objective, verdict), confirmed=verdict.winner is not None)
    return StudyResult(
        study=study.name,
        verdict=verdict,
        launch_command=verdict.launch_command,
        constraints=study.search.constraints,
        outcomes=dict(sorted(Counter(record.outcome for record in records).items())),
        trials=tuple(trial_rows(records, objective, verdict)),
        details=details(settings, slo),
        costs=costs(settings),
        remarks=tuple(remarks(root, study, records, verdict)),
        scenario=study.search.scenario.name,
        scenario_fingerprint=study.scenario_fingerprint,
        environment=study.environment,
    )


def trial_rows(records: Sequence[TrialRecord], objective: Objective, verdict: Verdict) -> list[TrialRow]:
    """Return the feasible trials of the search best first, then those of the confirmation, then all others.

    The two groups are not sorted into one: they played different sessions (design rule 13).
    """
    winner = verdict.winner.key if verdict.winner else None
    best_first = sorted(
        records, key=lambda r: (not objective.feasible(r), PURPOSES.index(r.purpose), objective.order(r), r.number)
    )
    return [_row(record, objective, winner) for record in best_first]


def leader(records: Sequence[TrialRecord], objective: Objective, verdict: Verdict) -> str | None:
    """Return the key of the winner, of the best so far when nothing is confirmed, or None when nothing is feasible."""
    if verdict.winner:
        return verdict.winner.key
    best = min((r for r in records if objective.feasible(r)), key=objective.order, default=None)
    return best.setting.key if best else None


def _row(record: TrialRecord, objective: Objective, winner: str | None) -> TrialRow:
    summary, cache, headroom, effective = record.summary, record.cache, record.headroom, record.effective
    whole, first = (summary.whole_run, summary.first_turns) if summary and record.usable else (None, None)
    return TrialRow(
        number=record.number,
        purpose=record.purpose,
        label=record.setting.label,
        key=record.setting.key,
        hicache=record.setting.hicache,
        seed=record.seed,
        winner=record.setting.key == winner,
        outcome=record.outcome,
        feasible=objective.feasible(record),
        reason=record.reason or _broken(record, objective),
        failure=record.failure.kind if record.failure else None,
        engine_said=record.failure.last_lines if record.failure else (),
        ttft=summary.steady if summary and record.usable else None,
        whole_run_p99_s=whole.p99_s if whole else None,
        first_turns_p99_s=first.p99_s if first else None,
        ok=summary.ok if summary else None,
        counted=summary.counted if summary else None,
        cut=summary.cut if summary else None,
        error_rate=summary.error_rate if summary else None,
        device_hit_rate=_of_prompt(cache, cache.device_cached_tokens if cache else None),
        host_hit_rate=_of_prompt(cache, cache.host_cached_tokens if cache else None),
        storage_hit_rate=_of_prompt(cache, cache.storage_cached_tokens if cache else None),
        reload_tokens=cache.load_back_tokens if cache else None,
        device_headroom_bytes=headroom.device_bytes if headroom else None,
        host_headroom_bytes=headroom.host_bytes if headroom else None,
        device_pool_tokens=effective.device_pool_tokens if effective else None,
        host_pool_tokens=effective.host_pool_tokens if effective else None,
        duration_s=record.duration_s,
    )


def _of_prompt(cache: CacheDelta | None, tokens: int | None) -> float | None:
    return tokens / cache.prompt_tokens if cache and cache.prompt_tokens and tokens is not None else None


def _broken(record: TrialRecord, objective: Objective) -> str:
    names = [name for name in objective.broken(record) if name != LAUNCHED]
    return f"breaks {' and '.join(f'`{name}`' for name in names)}" if names else ""
