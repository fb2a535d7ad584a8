"""What of a trial's record is exported for Prometheus."""

from __future__ import annotations

from pathlib import Path

from harness.environment import Environment
from harness.load.job import JOB_FILE, LoadJob
from harness.load_conditions import Sign
from harness.reload_cost import Estimate, ReloadCost
from harness.store import TrialRecord
from harness.summary import Summary
from harness.telemetry import CacheDelta
from harness.telemetry.trial_metrics import OFF, ON, ReloadFigures, TrialFigures
from tuning.config import Search
from tuning.study import BASELINES

PROCESSES_LEFT, MEMORY_KEPT = "processes left", "device memory kept"
"""What a trial can leave behind, beside the signs of its load."""
TTFT_QUANTILES = (0.5, 0.9, 0.95, 0.99)


def figures_of(record: TrialRecord) -> TrialFigures:
    """Take the figures of `record`."""
    cache, summary = record.cache, record.summary
    return TrialFigures(
        number=record.number,
        setting=record.setting.label,
        purpose=record.purpose,
        outcome=record.outcome.value,
        failure=record.failure.kind.value if record.failure else None,
        ttft_s=_ttft_s(summary) if record.usable else {},  # what may not be compared is not shown as a number
        headroom=record.headroom,
        cached_ratio=_cached_ratio(cache),
        requests=_requests(summary),
        reload_tokens=cache.load_back_tokens if cache else None,
        evicted_tokens=cache.evicted_tokens if cache else None,
        eviction_s=cache.eviction_seconds if cache else None,
        backup_tokens=cache.backup_tokens if cache else None,
        reload=_reload(record.reload) if record.reload else None,
        steps_s={step.name: step.seconds for step in record.steps},
        remarks=_remarks(record),
    )


def baseline_of(record: TrialRecord) -> str | None:
    """Return which baseline the trial measured in the search; None when it did not."""
    if record.purpose != "search" or record.setting not in BASELINES:
        return None
    return ON if record.setting.hicache else OFF


def conditions_of(search: Search, environment: Environment) -> dict[str, str]:
    """Return under which conditions a study measures, as labels; what is not there is an empty one."""
    return {
        "scenario": search.scenario.name,
        "model": environment.model,
        "sglang_version": environment.sglang_version,
        "gpu": ", ".join(environment.gpus),
        "driver": environment.driver or "",
        "device": environment.device,
        "tool_version": environment.tool_version,
    }


def engine_of(root: Path, number: int) -> str | None:
    """Return the address of the engine that trial `number` plays against; None before its load has begun."""
    for path in (root / "trials").glob(f"{number:04d}-*/{JOB_FILE}"):
        return LoadJob.read(path).base_url
    return None


def _ttft_s(summary: Summary | None) -> dict[float, float]:
    steady = summary.steady if summary else None
    if steady is None:
        return {}
    return dict(zip(TTFT_QUANTILES, (steady.p50_s, steady.p90_s, steady.p95_s, steady.p99_s), strict=True))


def _cached_ratio(cache: CacheDelta | None) -> dict[str, float]:
    if cache is None or not cache.prompt_tokens:
        return {}
    tiers = {
        "device": cache.device_cached_tokens,
        "host": cache.host_cached_tokens,
        "storage": cache.storage_cached_tokens,
    }
    return {tier: tokens / cache.prompt_tokens for tier, tokens in tiers.items() if tokens is not None}


def _requests(summary: Summary | None) -> dict[str, int]:
    if summary is None:
        return {}
    return {
        "ok": summary.ok,
        "failed": summary.failed,
        "timed out": summary.timed_out,
        "cut": summary.cut,
        "not played": summary.not_played,
    }


def _remarks(record: TrialRecord) -> dict[str, bool]:
    """Take what was remarked of the load and of what it has left behind; nothing is known without a load."""
    if record.conditions is None:
        return {}
    signs, stop = record.conditions.signs, record.hygiene.stop
    return {
        **{sign.value: sign in signs for sign in Sign},
        PROCESSES_LEFT: stop is not None and not stop.clean,
        MEMORY_KEPT: record.hygiene.memory_back is False,
    }


def _reload(cost: ReloadCost) -> ReloadFigures | None:
    """Take what the fit on the client's records says; None where there were too few requests for one."""
    fixed, reload, compute = cost.reload_fixed_s, cost.reload_s_per_token, cost.compute_s_per_token
    if fixed is None or reload is None or compute is None:
        return None
    return ReloadFigures(_bounds(fixed), _bounds(reload), _bounds(compute), cost.break_even_tokens)


def _bounds(found: Estimate) -> dict[str, float]:
    return {"estimate": found.value, "low": found.low, "high": found.high}
