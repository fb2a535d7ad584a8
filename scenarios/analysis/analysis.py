"""From a load to all that is said of it before any GPU second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scenarios.analysis.curve import hit_curve
from scenarios.analysis.distances import reuse
from scenarios.analysis.load import Load
from scenarios.analysis.machine import Machine
from scenarios.analysis.marks import mark
from scenarios.analysis.prior import CachePrior
from scenarios.analysis.record import FEW_REQUESTS, Analysis, Answer, Arrivals, CacheUse, Verdict
from scenarios.analysis.sharing import WINDOWS, reuse_quantiles, sharing, working_set
from scenarios.analysis.verdict import decide
from scenarios.analysis.weights import token_weights
from scenarios.errors import ScenarioError


def analyse(load: Load, machine: Machine) -> Analysis:
    """Count everything on `load` and judge it for `machine`; raise ScenarioError when it has no prompt."""
    if not load.stream.prompt_tokens[load.stream.counted].any():
        raise ScenarioError(
            f"{load.source}: no request has a prompt whose tokens are known, so there is nothing to analyse; check the "
            "file, or give --model when it holds text, which only a tokenizer can count"
        )
    cache = None if load.unknown else _cache_use(load, machine)
    verdict = decide(cache, machine, others_known=load.others_known) if cache else Verdict(Answer.UNKNOWN, load.unknown)
    return Analysis(
        source=load.source,
        verdict=verdict,
        sentence=verdict.sentence,
        arrivals=_arrivals(load),
        cache=cache,
        machine=machine,
        notes=(*load.notes, *_notes(load)),
    )


def _cache_use(load: Load, machine: Machine) -> CacheUse:
    stream = load.stream
    found = reuse(stream)
    weights = token_weights(stream, stream.counted)
    curve = hit_curve(stream, found, weights)
    prior = CachePrior.of(load.source, curve)
    device_tokens = machine.device_tokens
    pools = () if device_tokens is None else (None, *machine.pools_for(curve))
    shares = sharing(stream, found, weights)
    return CacheUse(
        block_tokens=stream.block_tokens,
        blocks=len(stream.keys),
        sample_rate=stream.rate,
        sharing=shares if load.sessions_known else replace(shares, own_session=None, other_sessions=None),
        reuse=reuse_quantiles(stream, found, weights),
        working_set=working_set(stream, found),
        curve=prior,
        knee_tokens=curve.knee(device_tokens or 0),
        marks=tuple(mark(prior, machine, device_tokens or 0, pool, stream, found) for pool in pools),
    )


def _arrivals(load: Load) -> Arrivals:
    stream = load.stream
    duration_s = float(stream.at_s[-1])
    in_window, edges = np.histogram(stream.at_s, bins=WINDOWS, range=(0.0, max(duration_s, 1e-3)))
    prompts = stream.prompt_tokens[stream.counted]
    return Arrivals(
        requests=len(stream),
        counted=len(prompts),
        sessions=len(np.unique(stream.session)) if load.sessions_known else None,
        duration_s=duration_s,
        times=load.times,
        prompt_tokens=int(prompts.sum()),
        median_prompt_tokens=int(np.median(prompts)),
        longest_prompt_tokens=int(prompts.max()),
        until_s=tuple(edges[1:].tolist()),
        in_window=tuple(in_window.tolist()),
    )


def _notes(load: Load) -> Iterator[str]:
    stream = load.stream
    if stream.rate < 1:
        yield f"Counted on a sample of 1 in {1 / stream.rate:.0f} blocks, chosen by their keys."
    if (counted := int(stream.counted.sum())) < FEW_REQUESTS:
        yield f"Only {counted} request(s): shares are coarse, and another such trace may look otherwise."
