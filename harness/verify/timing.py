"""Prompts of token ids that nobody has sent before, and how long the first token of each takes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from harness.errors import EngineUnreachable
from harness.load.reply import GenerateReply
from harness.load.sse import SseReader

TOKEN_IDS = range(300, 2000)
"""Ordinary pieces of words in every tokenizer that we know; models differ in what lies below and above."""
NEW_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """One prompt: its time to first token in seconds, and which tier its cached tokens came from."""

    ttft_s: float
    prompt_tokens: int
    device_tokens: int | None
    """None where the engine does not say."""
    host_tokens: int | None
    storage_tokens: int | None


def fresh_prompts(count: int, tokens: int) -> list[list[int]]:
    """Make prompts that share no prefix with anything the engine has seen."""
    draw = random.SystemRandom().choices
    return [draw(TOKEN_IDS, k=tokens) for _ in range(count)]


def time_prompt(client: httpx.Client, prompt: Sequence[int]) -> Timing:
    """Send `prompt` and measure its time to first token; raise EngineUnreachable when it is not answered."""
    sampling = {"max_new_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": list(prompt), "sampling_params": sampling, "stream": True}
    reply, reader = GenerateReply(), SseReader()
    sent_ns = time.monotonic_ns()
    try:
        with client.stream("POST", "/generate", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise EngineUnreachable(f"/generate was refused with {response.status_code}: {_said(response)}")
            for data in response.iter_raw():
                heard_ns = time.monotonic_ns()
                for event in reader.feed(data):
                    reply.feed(event, heard_ns)
    except httpx.HTTPError as problem:
        said = str(problem) or type(problem).__name__
        raise EngineUnreachable(f"the engine at {client.base_url} did not answer a prompt: {said}") from None
    if (fault := reply.problem()) is not None:
        raise EngineUnreachable(f"the engine at {client.base_url} did not answer a prompt: {fault}")
    return Timing(
        ttft_s=(reply.delta_times_ns[0] - sent_ns) / 1e9,
        prompt_tokens=reply.prompt_tokens or len(prompt),
        device_tokens=reply.device_cached_tokens,
        host_tokens=reply.host_cached_tokens,
        storage_tokens=reply.storage_cached_tokens,
    )


def _said(response: httpx.Response) -> str:
    return response.read().decode("utf-8", "replace")[:200] or "no message"
