"""The figures of single trials as metrics: of the last one, of the best so far, and of the baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.metrics_core import InfoMetricFamily, Metric

from harness.telemetry.exposition import gauge
from harness.telemetry.sampler import Headroom

LAST, BEST, OFF, ON = "last", "best", "off", "on"
"""Whose figures a trial metric shows: those of the last trial, of the best so far, or of a baseline."""

BY_ROLE = ("study", "role")


@dataclass(frozen=True)
class ReloadFigures:
    """What reloads cost the users of one trial (`harness.reload_cost`), by bound: estimate, low and high (95 %)."""

    fixed_s: Mapping[str, float]
    s_per_token: Mapping[str, float]
    compute_s_per_token: Mapping[str, float]
    break_even_tokens: float | None


@dataclass(frozen=True)
class TrialFigures:
    """What is exported of one trial. None, or an empty mapping, is what is not known."""

    number: int
    setting: str
    purpose: str
    outcome: str
    failure: str | None = None
    """Its class."""
    ttft_s: Mapping[float, float] = field(default_factory=dict)
    """By quantile."""
    headroom: Headroom | None = None
    cached_ratio: Mapping[str, float] = field(default_factory=dict)
    """Share of the prompt tokens that each tier had."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Counted requests by how they ended."""
    reload_tokens: int | None = None
    evicted_tokens: int | None = None
    eviction_s: float | None = None
    backup_tokens: int | None = None
    reload: ReloadFigures | None = None
    steps_s: Mapping[str, float] = field(default_factory=dict)
    remarks: Mapping[str, bool] = field(default_factory=dict)
    """What may have changed the figures or was left behind, and whether it was seen."""


Roles = list[tuple[tuple[str, str], TrialFigures]]


def trial_families(roles: Roles) -> Iterator[Metric]:
    """Yield the figures of the last trial, of the best and of the baselines: one family each, by role."""
    info = InfoMetricFamily("hicache_tune_trial", "Which trial has a role, and its setting.", labels=BY_ROLE)
    for key, figures in roles:
        info.add_metric(key, {"trial": str(figures.number), "setting": figures.setting, "outcome": figures.outcome})
    yield info
    yield gauge(
        "hicache_tune_trial_ttft_seconds",
        "TTFT of a trial, from raw records of its steady window.",
        (*BY_ROLE, "quantile"),
        [((*key, f"{quantile:g}"), seconds) for key, of in roles for quantile, seconds in of.ttft_s.items()],
    )
    yield gauge(
        "hicache_tune_trial_headroom_bytes",
        "Least memory seen free under the load of a trial.",
        (*BY_ROLE, "kind"),
        [((*key, kind), free_bytes) for key, of in roles for kind, free_bytes in _kinds(of.headroom)],
    )
    yield gauge(
        "hicache_tune_trial_headroom_doubled_bytes",
        "Memory that would be free at twice the concurrency, guessed from a trial's growth; below zero: no room.",
        (*BY_ROLE, "kind"),
        [((*key, kind), free_bytes) for key, of in roles for kind, free_bytes in _doubled(of.headroom)],
    )
    yield gauge(
        "hicache_tune_trial_remark_state",
        "1 for what may have changed the figures of a trial, or was left behind by it; 0 for what was not seen.",
        (*BY_ROLE, "remark"),
        [((*key, remark), float(seen)) for key, of in roles for remark, seen in of.remarks.items()],
    )
    yield gauge(
        "hicache_tune_trial_cached_ratio",
        "Share of a trial's prompt tokens that a tier had.",
        (*BY_ROLE, "tier"),
        [((*key, tier), share) for key, of in roles for tier, share in of.cached_ratio.items()],
    )
    yield gauge(
        "hicache_tune_trial_step_seconds",
        "How long a step of a trial took.",
        (*BY_ROLE, "step"),
        [((*key, step), seconds) for key, of in roles for step, seconds in of.steps_s.items()],
    )
    values: Sequence[float | None]
    for name, text, values in (
        (
            "reload_tokens",
            "Tokens copied from host or storage back to the device.",
            [of.reload_tokens for _, of in roles],
        ),
        (
            "evicted_tokens",
            "Device slots freed, kept in host memory or dropped.",
            [of.evicted_tokens for _, of in roles],
        ),
        ("backup_tokens", "Tokens written to the host pool (from 0.5.23 on).", [of.backup_tokens for _, of in roles]),
        ("eviction_seconds", "Time in which evictions blocked the scheduler.", [of.eviction_s for _, of in roles]),
        (
            "reload_break_even_tokens",
            "Reloading more tokens than this is faster than computing them.",
            [of.reload.break_even_tokens if of.reload else None for _, of in roles],
        ),
    ):
        samples = [(key, value) for (key, _), value in zip(roles, values, strict=True)]
        yield gauge(f"hicache_tune_trial_{name}", text, BY_ROLE, samples)
    yield from _reload_families(roles)


def _reload_families(roles: Roles) -> Iterator[Metric]:
    """Yield what the fit on the client's records says, each estimate with its interval."""
    fits = [(key, of.reload) for key, of in roles if of.reload is not None]
    for name, text, found in (
        ("reload_fixed_seconds", "TTFT that a reload adds, whatever its length.", [fit.fixed_s for _, fit in fits]),
        ("reload_seconds_per_token", "TTFT that each reloaded token adds.", [fit.s_per_token for _, fit in fits]),
        (
            "compute_seconds_per_token",
            "TTFT that each uncached token adds.",
            [fit.compute_s_per_token for _, fit in fits],
        ),
    ):
        yield gauge(
            f"hicache_tune_trial_{name}",
            f"{text} Fitted on the client's records; bound is estimate, low or high (95 %).",
            (*BY_ROLE, "bound"),
            [((*key, bound), value) for (key, _), of in zip(fits, found, strict=True) for bound, value in of.items()],
        )


def _kinds(headroom: Headroom | None) -> list[tuple[str, int | None]]:
    if headroom is None:
        return []
    return [("device", headroom.device_bytes), ("host", headroom.host_bytes), ("cgroup", headroom.cgroup_bytes)]


def _doubled(headroom: Headroom | None) -> list[tuple[str, int | None]]:
    return [] if headroom is None else [("device", headroom.device_double_bytes), ("host", headroom.host_double_bytes)]
