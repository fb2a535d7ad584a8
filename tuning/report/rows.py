"""The trials of a study as rows: what every table, plot and file of the report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pydantic import Field

from harness.engine.failure import FailureKind
from harness.engine.setting import FlagValue, Setting
from harness.metrics import Latency
from harness.store import Outcome, Purpose, TrialRecord
from harness.telemetry import CacheDelta
from scenarios.strict import StrictModel
from tuning.objective import LAUNCHED, Objective, sustained_per_s
from tuning.space import only
from tuning.verdict import Verdict

PURPOSES = get_args(Purpose)
"""The purposes of trials, in the order in which they are told."""
STRESS = "stress"
"""The purpose of trials under more load than was asked for."""


class TrialRow(StrictModel):
    """One trial as it stands in a table. None means that it was not seen, never zero."""

    number: int
    purpose: Purpose
    label: str
    key: str
    values: dict[str, FlagValue] = Field(default_factory=dict)
    """Of each flag that the setting does not leave to SGLang, as the search space names it."""
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
    value: float | None = None
    """Of the objective, in its unit; None when it may not be compared."""
    ttft: Latency | None
    """Of the steady window; None when it may not be compared (design rule 12)."""
    whole_run_p99_s: float | None
    first_turns_p99_s: float | None
    requests_per_s: float | None = None
    """Answered over the steady window; of a load that was not sustained, what was sustained instead."""
    output_tokens_per_s: float | None = None
    """The same; None like `ttft`."""
    ok: int | None
    counted: int | None
    cut: int | None
    error_rate: float | None
    device_hit_rate: float | None
    host_hit_rate: float | None
    storage_hit_rate: float | None
    """Shares of the prompt tokens, from the engine's counters."""
    reload_tokens: int | None
    reload_bytes: int | None = None
    device_headroom_bytes: int | None
    host_headroom_bytes: int | None
    device_pool_tokens: int | None
    host_pool_tokens: int | None
    host_pool_bytes: int | None = None
    """Of all ranks together; 0 without HiCache."""
    duration_s: float

    @property
    def why(self) -> str:
        """The reason, and of a load that was not sustained the rate that was, which stands for its latencies."""
        if self.outcome is not Outcome.NOT_SUSTAINABLE or self.requests_per_s is None:
            return self.reason
        return f"{self.reason}; {self.requests_per_s:.2f} requests/s were answered"


def trial_rows(records: Sequence[TrialRecord], objective: Objective, verdict: Verdict) -> list[TrialRow]:
    """Return the feasible trials of each purpose best first, then all others.

    The purposes are not sorted into one: they played different sessions (design rule 13).
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
    feasible = (record for record in records if objective.feasible(record))
    best = min(feasible, key=lambda record: (PURPOSES.index(record.purpose), objective.order(record)), default=None)
    return best.setting.key if best else None


def _row(record: TrialRecord, objective: Objective, winner: str | None) -> TrialRow:
    summary, cache, headroom, effective = record.summary, record.cache, record.headroom, record.effective
    compared = summary if record.usable else None
    whole, first = (compared.whole_run, compared.first_turns) if compared else (None, None)
    return TrialRow(
        number=record.number,
        purpose=record.purpose,
        label=record.setting.label,
        key=record.setting.key,
        values=values_of(record.setting),
        hicache=record.setting.hicache,
        seed=record.seed,
        winner=record.setting.key == winner,
        outcome=record.outcome,
        feasible=objective.feasible(record),
        reason=record.reason or _broken(record, objective),
        failure=record.failure.kind if record.failure else None,
        engine_said=record.failure.last_lines if record.failure else (),
        value=objective.value(record),
        ttft=compared.steady if compared else None,
        whole_run_p99_s=whole.p99_s if whole else None,
        first_turns_p99_s=first.p99_s if first else None,
        requests_per_s=compared.requests_per_s if compared else sustained_per_s(record),
        output_tokens_per_s=compared.output_tokens_per_s if compared else None,
        ok=summary.ok if summary else None,
        counted=summary.counted if summary else None,
        cut=summary.cut if summary else None,
        error_rate=summary.error_rate if summary else None,
        device_hit_rate=_of_prompt(cache, cache.device_cached_tokens if cache else None),
        host_hit_rate=_of_prompt(cache, cache.host_cached_tokens if cache else None),
        storage_hit_rate=_of_prompt(cache, cache.storage_cached_tokens if cache else None),
        reload_tokens=cache.load_back_tokens if cache else None,
        reload_bytes=record.reload.bytes if record.reload else None,
        device_headroom_bytes=headroom.device_bytes if headroom else None,
        host_headroom_bytes=headroom.host_bytes if headroom else None,
        device_pool_tokens=effective.device_pool_tokens if effective else None,
        host_pool_tokens=effective.host_pool_tokens if effective else None,
        host_pool_bytes=_host_pool_bytes(record),
        duration_s=record.duration_s,
    )


def values_of(setting: Setting) -> dict[str, FlagValue]:
    """Return the value of each flag that `setting` gives, under the names of the search space."""
    return {dimension.name: dimension.choices[0] for dimension in only(setting).dimensions}


def _host_pool_bytes(record: TrialRecord) -> int | None:
    if not record.setting.hicache:
        return 0 if record.effective else None
    return record.seen.host_pool_bytes if record.seen else None


def _of_prompt(cache: CacheDelta | None, tokens: int | None) -> float | None:
    return tokens / cache.prompt_tokens if cache and cache.prompt_tokens and tokens is not None else None


def _broken(record: TrialRecord, objective: Objective) -> str:
    names = [name for name in objective.broken(record) if name != LAUNCHED]
    return f"breaks {' and '.join(f'`{name}`' for name in names)}" if names else ""
