"""The sampler of `auto`: what it proposes first, and where it goes with what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import optuna
import pytest

from harness.engine.setting import Setting
from scenarios.analysis import CachePrior
from tuning.prior import Pools, Prior
from tuning.samplers.guided import GuidedSampler, Known
from tuning.samplers.points import all_points
from tuning.space import Ranges

SPACE = Ranges(
    mem_fraction_static="0.80:0.90:0.05", hicache_ratio="2:6:1", hicache_write_policy="write_through,write_back"
).space()
POINTS = list(all_points(SPACE, Setting.canonical))
CURVE = CachePrior("a load", 50_000, (0.0, 8_000.0, 20_000.0, 40_000.0), (0.0, 0.2, 0.6, 0.9))


def pools(setting: Setting) -> Pools:
    """Give a device pool that grows with its fraction, and a host pool by its ratio."""
    device = 10_000 * (setting.mem_fraction_static or 0.88)
    return Pools(device, device * (setting.hicache_ratio or 0))


PRIOR = Prior(CURVE, pools)


def search(
    value_of: dict[str, float] | None = None,
    *,
    prior: Prior | None = PRIOR,
    trials: int = 8,
    known: Sequence[Known] = (),
    direction: Literal["minimize", "maximize"] = "minimize",
) -> list[Setting]:
    """Search with values by the policy: 1 s for what is not named; infinity is infeasible."""
    study = optuna.create_study(sampler=GuidedSampler(POINTS, prior, seed=1, known=known), direction=direction)
    found = []
    for _ in range(trials):
        trial = study.ask()
        setting = SPACE.propose(trial)
        value = (value_of or {}).get(setting.hicache_write_policy or "off", 1.0)
        trial.set_constraint("launched", 1.0 if value == float("inf") else -1.0)
        study.tell(trial, 600.0 if value == float("inf") else value)
        found.append(setting)
    return found


def test_the_first_proposal_is_the_smallest_host_pool_that_should_hit_all() -> None:
    """All sizes above 40,000 tokens are expected to do equally well, so the least memory comes first."""
    (first,) = search(trials=1)
    enough = [p.setting for p in POINTS if (e := PRIOR.expected(p.setting)) and e.device_hits + e.host_hits > 0.89]
    assert first in enough
    assert pools(first).host_tokens == min(pools(setting).host_tokens for setting in enough)


def test_nothing_is_proposed_twice() -> None:
    """Every setting comes before any comes again."""
    found = search(trials=len(POINTS))
    assert len({setting.key for setting in found}) == len(POINTS)


def test_it_goes_where_values_are_lower() -> None:
    """One policy is twice as fast: after it was met, most proposals have it."""
    found = search({"write_back": 0.5}, prior=None, trials=12)
    late = found[4:]
    assert sum(setting.hicache_write_policy == "write_back" for setting in late) > len(late) / 2


@pytest.mark.parametrize("values", [{"write_back": 2.0}, {"write_back": 0.9, "write_through": 0.0, "off": 0.0}])
def test_it_goes_where_values_are_higher_if_that_is_better(values: dict[str, float]) -> None:
    """A throughput, or a share of requests that keep a service level, which may be 0."""
    late = search(values, prior=None, trials=12, direction="maximize")[4:]
    assert sum(setting.hicache_write_policy == "write_back" for setting in late) > len(late) / 2


def test_it_leaves_what_fails() -> None:
    """Where one policy never starts, at most a few trials are spent on it."""
    found = search({"write_back": float("inf")}, trials=12)
    assert sum(setting.hicache_write_policy == "write_back" for setting in found) <= 3


def test_a_wrong_expectation_excludes_nothing() -> None:
    """HiCache is expected to help, and the baselines show that it does not: the settings without it come soon."""
    baselines = [Known(Setting(), 1.0, feasible=True), Known(Setting(hicache=True).canonical(), 3.0, feasible=True)]
    found = search({"write_back": 3.0, "write_through": 3.0, "off": 1.0}, trials=6, known=baselines)
    assert sum(not setting.hicache for setting in found) >= 2


@pytest.mark.parametrize("prior", [None, Prior(CURVE, lambda setting: pools(setting) if setting.hicache else None)])
def test_without_expectations_of_all_settings_there_are_none(prior: Prior | None) -> None:
    """A part cannot be compared with the rest; the first proposal is drawn then."""
    assert search(prior=prior, trials=4) == search(prior=None, trials=4)
