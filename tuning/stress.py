"""The winner under more load than was asked for, before it is recommended: a caution, never a change of the winner."""

from __future__ import annotations

import math

from scenarios import Plan, Scenario

STRESS_SEED_OFFSET = 3000
"""Other sessions, which come in another order, than any that the winner was chosen or confirmed on."""
TIMES = 1.5
LOAD = f"{TIMES:g} times the load"


def stressed(scenario: Scenario, plan: Plan) -> Scenario:
    """Return `scenario` with `TIMES` the sessions at a time, or arriving in a second, that its `plan` has."""
    if plan.concurrency is not None:
        return scenario.scaled(concurrency=math.ceil(TIMES * plan.concurrency))
    if plan.rate_per_s is not None:
        return scenario.opened(TIMES * plan.rate_per_s)
    last_s = max(session.start_s for session in plan.sessions)
    return scenario.opened(TIMES * len(plan.sessions) / max(last_s, 1.0))
