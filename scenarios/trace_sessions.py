"""The requests of a trace as whole sessions."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scenarios.trace import Clock, Message, Trace, TraceRequest, TraceSession


def trace_sessions(trace: Trace) -> Iterator[TraceSession]:
    """Yield the sessions of a trace, each as soon as it is whole.

    A trace with sessions is read twice: first to learn which request is the last of its session, in a few bytes a
    request, so that then only those sessions are held that have begun and not ended.
    """
    clock = trace.info.clock
    if not (trace.info.sessions_recorded or trace.info.sessions_inferred):
        for request in trace.requests():
            yield _session([request], clock)
        return
    is_last = _last_of_sessions(trace)
    begun: dict[str, list[TraceRequest]] = {}
    for index, request in enumerate(trace.requests()):
        begun.setdefault(request.session_id, []).append(request)
        if is_last[index]:
            yield _session(begun.pop(request.session_id), clock)
    for requests in begun.values():  # names with equal hashes hide each other's last request
        yield _session(requests, clock)


def _last_of_sessions(trace: Trace) -> bytearray:
    """Mark the last request of each session with 1."""
    names = np.frombuffer(array("q", (hash(request.session_id) for request in trace.requests())), dtype=np.int64)
    _, from_end = np.unique(names[::-1], return_index=True)
    marks = np.zeros(len(names), dtype=np.uint8)
    marks[len(names) - 1 - from_end] = 1
    return bytearray(marks.tobytes())


def _session(requests: list[TraceRequest], clock: Clock) -> TraceSession:
    turns = _with_late_replies(sorted(requests, key=lambda request: request.turn))
    first = turns[0]
    # Where arrivals are not recorded, a delay before the first turn is all that is known of the session's start.
    start_s = first.at_s if clock is Clock.TRACE and first.at_s is not None else first.think_s or None
    return TraceSession(first.session_id, start_s, tuple(turns))


def _with_late_replies(turns: list[TraceRequest]) -> list[TraceRequest]:
    """Move replies that a chat log shows only at the beginning of the next request to the turn they answer."""
    settled = list(turns)
    for index, request in enumerate(turns):
        replies = [message for message in request.messages if message.role == "assistant"]
        answered = index - 1 if request.after is None else request.after
        late = request.messages[: len(replies)]
        if not replies or answered < 0 or any(message.role != "assistant" for message in late):
            continue
        if settled[answered].reply is None:
            reply = Message("assistant", "\n".join(message.text for message in late))
            settled[answered] = replace(settled[answered], reply=reply)
            settled[index] = replace(settled[index], messages=request.messages[len(late) :])
    return settled
