"""What can be done to a trace before it is played: each step takes a trace and returns another, still a stream.

What a step changed is counted in the trace's report.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from scenarios.reading_report import Remark
from scenarios.trace import Clock, Trace, TraceError, TraceRequest

JITTER_S = 0.002
"""Steps are so much unequal in Mooncake's traces; a step's last part is left free, so that order stays."""


def cap_think(trace: Trace, cap_s: float) -> Trace:
    """Cut think times to `cap_s`. On a session's own clock, its later turns come earlier by what was cut.

    Recorded arrivals (`Clock.TRACE`) stay: moving one session would change which others it meets.
    """

    def requests() -> Iterator[TraceRequest]:
        cut_s: dict[str, float] = {}
        for request in trace.requests():
            capped = request
            if request.turn and request.think_s is not None and request.think_s > cap_s:
                trace.report.note(Remark.THINK_CAPPED, f"line {request.line}")
                cut_s[request.session_id] = cut_s.get(request.session_id, 0.0) + request.think_s - cap_s
                capped = replace(capped, think_s=cap_s)
            if trace.info.clock is Clock.SESSION and request.at_s is not None and request.session_id in cut_s:
                capped = replace(capped, at_s=max(0.0, request.at_s - cut_s[request.session_id]))
            yield capped

    return replace(trace, requests=requests)


def spread_ticks(trace: Trace, seed: int) -> Trace:
    """Spread arrivals over the step that the source rounded them to, keeping their order; raise TraceError without one.

    Requests that share a time get sorted uniform draws from the step that begins there.
    """
    step_s = trace.info.at_step_s
    if step_s is None:
        raise TraceError(f"the arrivals of this {trace.info.format} trace are not rounded; leave out --spread-ticks")

    def requests() -> Iterator[TraceRequest]:
        for at_s, group in itertools.groupby(trace.requests(), key=lambda request: request.at_s):
            if at_s is None:
                yield from group
                continue
            members = list(group)
            draw = random.Random(f"{seed}/{at_s!r}")  # noqa: S311 (no secret)
            offsets = sorted(draw.uniform(0, step_s - JITTER_S) for _ in members)
            trace.report.note(Remark.SPREAD, f"line {members[0].line}", len(members))
            for request, offset_s in zip(members, offsets, strict=True):
                yield replace(request, at_s=at_s + offset_s)

    return replace(trace, info=replace(trace.info, at_step_s=None), requests=requests)


def draw_sessions(trace: Trace, count: int, seed: int) -> Trace:
    """Keep `count` whole sessions, drawn without replacement; all when there are no more."""

    def requests() -> Iterator[TraceRequest]:
        names = list(dict.fromkeys(request.session_id for request in trace.requests()))
        drawn = set(random.Random(seed).sample(names, min(count, len(names))))  # noqa: S311 (no secret)
        for request in trace.requests():
            if request.session_id in drawn:
                yield request
            else:
                trace.report.note(Remark.NOT_SAMPLED, f"line {request.line}")

    return replace(trace, requests=requests)
