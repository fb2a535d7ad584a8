"""A minute on a live engine: does it keep KV in host memory, and is bringing it back faster than computing it?

Prompts that nobody has sent are timed three times: never seen (cold), sent again (device hits), and sent once more
after as many other prompts as fill the device's KV pool. The engine says of each where its cached tokens came from.
Most of them are of one length, and some are shorter, to learn from which length on it is faster. All are random token
ids, so that no user's cache is touched but by eviction, and the engine is only asked for two tokens of each. The fill
is what users feel: it is bounded in tokens and in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from harness.engine.client import EngineClient
from harness.errors import EngineError
from harness.telemetry import CacheDelta, MetricsSnapshot
from harness.verify.judgement import Judgement, judge
from harness.verify.timing import fresh_prompts, time_prompt
from scenarios.strict import StrictModel

SPARE_TOKENS = 64
"""Left free of the context for the reply and for special tokens."""
OVERFILL = 1.1
"""How many times the device pool is filled: other users' KV is evicted as well."""

PARTS = (1, 2, 4, 8)
"""Besides prompts of the full length there are some of a half, a quarter and an eighth of it."""
LEAST_TOKENS = 32
"""Shorter ones say nothing: SGLang reloads nothing of less than 10 tokens, and only whole pages."""

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a verification may cost the engine and its users."""

    probes: int = 8
    prompt_tokens: int = 2000
    fill_tokens: int = 2_000_000
    seconds: float = 60.0


class Verification(StrictModel):
    """What was sent, what was seen, and what it means."""

    schema_version: int = 1
    base_url: str
    sglang_version: str | None
    hicache: bool
    """What the engine says of itself."""
    device_pool_tokens: int
    prompt_tokens: int
    """Of the longest; some are shorter."""
    fill_tokens: int
    """Tokens of other prompts that were sent to fill the device."""
    fill_complete: bool
    """Whether they were as many as the pool holds; False when a limit came first."""
    seconds: float
    judgement: Judgement
    counters: CacheDelta | None
    """What the engine counted meanwhile, other users included; None without /metrics."""


def verify(
    control: EngineClient,
    *,
    headers: dict[str, str],
    limits: Limits,
    say: Step = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Verification:
    """Verify the engine of `control`. Raises EngineError when it does not answer or says too little."""
    started = time.monotonic()
    info = control.server_info()
    pool_tokens = _pool_tokens(info)
    tokens = _prompt_tokens(info, limits)
    before = _counters(control)
    with httpx.Client(base_url=control.base_url, headers=headers, timeout=limits.seconds, trust_env=False) as client:
        lengths = _lengths(tokens, limits.probes)
        prompts = [prompt for length, count in lengths for prompt in fresh_prompts(count, length)]
        say("cold prompts")
        for length, _ in lengths:  # the first of a length may compile kernels
            time_prompt(client, fresh_prompts(1, length)[0])
        cold = [time_prompt(client, prompt) for prompt in prompts]
        say("the same again, from the device")
        again = [time_prompt(client, prompt) for prompt in prompts]
        for prompt in prompts:  # write_through_selective keeps on the host what was used more than once
            time_prompt(client, prompt)
        say("others, until the device is full")
        deadline = started + limits.seconds
        filled = _fill(client, min(round(OVERFILL * pool_tokens), limits.fill_tokens), tokens, deadline, should_stop)
        say("the first ones once more")
        evicted = [time_prompt(client, prompt) for prompt in prompts]
    after = _counters(control)
    return Verification(
        base_url=control.base_url,
        sglang_version=info.get("version"),
        hicache=bool(info.get("enable_hierarchical_cache")),
        device_pool_tokens=pool_tokens,
        prompt_tokens=tokens,
        fill_tokens=filled,
        fill_complete=filled >= pool_tokens,
        seconds=round(time.monotonic() - started, 1),
        judgement=judge(cold, again, evicted, hicache=bool(info.get("enable_hierarchical_cache"))),
        counters=CacheDelta.between(before, after) if before and after else None,
    )


def _fill(
    client: httpx.Client, wanted_tokens: int, prompt_tokens: int, deadline: float, should_stop: Callable[[], bool]
) -> int:
    """Send other prompts one after the other until so many tokens are sent, or time is up; return how many were."""
    sent = 0
    while sent < wanted_tokens and time.monotonic() < deadline and not should_stop():
        sent += time_prompt(client, fresh_prompts(1, prompt_tokens)[0]).prompt_tokens
    return sent


def _pool_tokens(info: dict[str, Any]) -> int:
    tokens = info.get("max_total_num_tokens")
    if not isinstance(tokens, int) or tokens <= 0:
        raise EngineError("the engine does not tell the size of its KV pool (/server_info); is this an SGLang server?")
    return tokens


def _prompt_tokens(info: dict[str, Any], limits: Limits) -> int:
    """Shorten the prompts to the engine's context, and so that all of them fit on the device together."""
    all_of_them = sum(count / part for part, count in _counts(limits.probes))
    longest = [limits.prompt_tokens, int(_pool_tokens(info) / (2 * all_of_them))]
    if isinstance(context := info.get("context_length"), int):
        longest.append(context - SPARE_TOKENS)
    return max(1, min(longest))


def _counts(probes: int) -> list[tuple[int, int]]:
    """Return how many prompts are sent of each part of the full length: half as many of the shorter ones."""
    return [(part, probes if part == 1 else probes // 2) for part in PARTS]


def _lengths(tokens: int, probes: int) -> list[tuple[int, int]]:
    return [(tokens // part, count) for part, count in _counts(probes) if part == 1 or tokens // part >= LEAST_TOKENS]


def _counters(control: EngineClient) -> MetricsSnapshot | None:
    try:
        return MetricsSnapshot.parse(control.metrics_text(), where=f"{control.base_url}/metrics")
    except EngineError:
        return None
