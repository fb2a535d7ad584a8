"""From a scenario and a seed to the plan that is played."""

from __future__ import annotations

from scenarios.casting import Role, Source, closed_sessions, open_sessions
from scenarios.errors import ScenarioError
from scenarios.model import Api, Mix, Replay, Scenario, Synthetic
from scenarios.plan import Plan
from scenarios.replay import replay_plan
from scenarios.synthetic import MixSource, Pen, UserSource
from scenarios.tokenizer import PromptTokenizer


def make_plan(scenario: Scenario, seed: int, tokenizer: PromptTokenizer, api: Api | None = None) -> Plan:
    """Make the sessions of `scenario` for `seed`; equal arguments give equal plans, another seed other words.

    `api` overrides the scenario's. Raise ScenarioError for a negative seed, a tokenizer without exact texts, and a
    scenario that is sized by the engine's KV pool and was not sized yet (see `sized`).
    """
    if seed < 0:
        raise ScenarioError(f"the seed is {seed}; give one of 0 or more")
    if scenario.sessions.working_set is not None:
        raise ScenarioError(
            f"the scenario {scenario.name} fills {scenario.sessions.working_set}, and the size of the engine's KV pool "
            "is not known yet; give --device-kv-tokens N (the engine logs it as max_total_num_tokens) or --concurrency"
        )
    if isinstance(scenario, Replay):
        return replay_plan(scenario, seed, tokenizer, api or scenario.api)
    return _user_plan(scenario, Pen(tokenizer, seed, api or scenario.api))


def _user_plan(scenario: Synthetic | Mix, pen: Pen) -> Plan:
    source: Source = UserSource(scenario, pen) if isinstance(scenario, Synthetic) else MixSource(scenario.mix, pen)
    pace, arrivals, rate = scenario.sessions, scenario.arrivals, None
    if arrivals is not None:
        rate = arrivals.mean_per_s
        sessions = open_sessions(
            source,
            arrivals.times(pen.streams(Role.ARRIVALS, 0)[0]),
            counted=pace.counted,
            warm_up_s=pace.warm_up_s,
            where=f"scenario {scenario.name}",
        )
    else:
        sessions = closed_sessions(source, slots=pace.concurrency or 1, ramp_s=pace.ramp_s or 0.0, counted=pace.counted)
    return Plan(scenario.name, pen.seed, pace.concurrency, tuple(sessions), rate)
