"""Rows of a report without a study behind them."""

from __future__ import annotations

from typing import Any

from harness.engine.setting import Setting
from harness.metrics import Latency
from harness.store import Outcome
from tuning.report.rows import TrialRow, values_of


def trial_row(number: int, setting: Setting, p99_s: float | None, **changes: Any) -> TrialRow:
    """Make the row of a trial of the search; without a P99 its engine failed."""
    figures: dict[str, Any] = {
        "number": number,
        "purpose": "search",
        "label": setting.label,
        "key": setting.key,
        "values": values_of(setting),
        "hicache": setting.hicache,
        "seed": 1,
        "winner": False,
        "outcome": Outcome.FAILED if p99_s is None else Outcome.MEASURED,
        "feasible": p99_s is not None,
        "reason": "",
        "failure": None,
        "engine_said": (),
        "value": p99_s,
        "ttft": None if p99_s is None else latency(p99_s),
        "duration_s": 60.0,
    }
    unknown = {name: None for name, field in TrialRow.model_fields.items() if field.is_required()}
    return TrialRow.model_validate(unknown | figures | changes)


def latency(p99_s: float) -> Latency:
    """Make quantiles around a P99."""
    return Latency(
        count=600, p50_s=0.4 * p99_s, p90_s=0.7 * p99_s, p95_s=0.8 * p99_s, p99_s=p99_s, max_s=1.2 * p99_s,
        p99_low_s=0.9 * p99_s, p99_high_s=1.1 * p99_s, confident=True,
    )  # fmt: skip
