"""Sessions of traces that record none, found by the blocks that requests share.

A request continues the latest earlier request whose last full block stands deepest in its own list. The first block
counts for nothing: it is the system prompt that everybody shares. So a request whose prompt has fewer than two full
blocks is never continued, and what is found is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scenarios.reading_report import Remark
from scenarios.trace import Scope, Trace, TraceError, TraceRequest


def infer_sessions(trace: Trace) -> Trace:
    """Give each request the session and turn that its blocks tell of; raise TraceError when they cannot.

    Memory grows with the number of different last blocks and of sessions. A request that continues another turn than
    the latest of its session is a branch (`after`).
    """
    info = trace.info
    if info.sessions_recorded:
        raise TraceError(f"this {info.format} trace records its sessions; leave out --infer-sessions")
    if info.block_tokens is None or info.scope is not Scope.GLOBAL:
        raise TraceError(f"this {info.format} trace has no global block ids, by which sessions could be inferred")
    block_tokens = info.block_tokens

    def requests() -> Iterator[TraceRequest]:
        ends: dict[int, tuple[int, int]] = {}
        turns: list[int] = []
        for request in trace.requests():
            parent = _parent(request.block_ids, ends)
            if parent is None:
                session, after = len(turns), None
                turns.append(0)
            else:
                session, parent_turn = parent
                after = None if parent_turn == turns[session] - 1 else parent_turn
                trace.report.note(Remark.INFERRED, f"line {request.line}")
                if after is not None:
                    trace.report.note(Remark.BRANCHED, f"line {request.line}")
            turn = turns[session]
            turns[session] += 1
            full = (request.input_tokens or 0) // block_tokens
            if full > 1:
                ends[request.block_ids[full - 1]] = (session, turn)
            yield replace(request, session_id=f"inferred-{session}", turn=turn, after=after)

    return replace(trace, info=replace(info, sessions_recorded=False, sessions_inferred=True), requests=requests)


def _parent(block_ids: tuple[int, ...], ends: dict[int, tuple[int, int]]) -> tuple[int, int] | None:
    """Return the session and turn that ended deepest in these blocks."""
    for block in reversed(block_ids[1:]):
        if block in ends:
            return ends[block]
    return None
