"""Steps between a recorded trace and the one that is played, and sessions that are inferred."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scenarios.infer_sessions import infer_sessions
from scenarios.readers import open_trace
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Scope, Trace, TraceError, TraceInfo, TraceRequest
from scenarios.trace_steps import cap_think, draw_sessions, spread_ticks
from tests.support.traces import AZURE_CODE, CONVERSATION, few_sessions, json_lines

BARE = TraceInfo("mine", Clock.TRACE, sessions_recorded=False, block_tokens=512, scope=Scope.GLOBAL)


def thinking(clock: Clock) -> Trace:
    """Make a session that thinks 10, 100 and 20 s between replies of 5 s."""
    times = [(0.0, None), (15.0, 10.0), (120.0, 100.0), (145.0, 20.0)]
    requests = [TraceRequest("a", n, 1, 1, at_s=at, think_s=think) for n, (at, think) in enumerate(times)]
    return Trace(TraceInfo("mine", clock, sessions_recorded=True), lambda: iter(requests))


def test_think_times_are_capped_and_what_follows_moves_up() -> None:
    """On the session's own clock the replies keep their 5 s."""
    trace = cap_think(thinking(Clock.SESSION), 12.0)
    assert [(r.at_s, r.think_s) for r in trace.requests()] == [(0, None), (15, 10), (32, 12), (49, 12)]
    assert trace.report.count(Remark.THINK_CAPPED) == 2


def test_recorded_arrivals_stay_under_a_cap() -> None:
    """Only think times change."""
    trace = cap_think(thinking(Clock.TRACE), 12.0)
    assert [(r.at_s, r.think_s) for r in trace.requests()] == [(0, None), (15, 10), (120, 12), (145, 12)]


def test_capped_claude_code_sessions(tmp_path: Path) -> None:
    """No think time of recorded sessions is longer than the cap afterwards, and those that were are counted."""
    file = few_sessions(tmp_path / "in")
    trace = cap_think(open_trace(file), 60.0)
    assert max(r.think_s or 0 for r in trace.requests()) == 60.0
    assert trace.report.count(Remark.THINK_CAPPED) == sum((r.think_s or 0) > 60 for r in open_trace(file).requests())


def test_arrivals_are_spread_within_their_step() -> None:
    """Every arrival moves by less than the step, order stays, the same seed gives the same, another seed others."""
    before = [r.at_s or 0 for r in open_trace(CONVERSATION).requests()]
    trace = spread_ticks(open_trace(CONVERSATION), seed=1)
    after = [r.at_s or 0 for r in trace.requests()]
    assert after == sorted(after)
    assert all(0 <= late - early < 3 for early, late in zip(before, after, strict=True))
    assert len(set(after)) == len(after)
    assert trace.info.at_step_s is None
    assert trace.report.count(Remark.SPREAD) == len(after)
    assert after == [r.at_s for r in spread_ticks(open_trace(CONVERSATION), seed=1).requests()]
    assert after != [r.at_s for r in spread_ticks(open_trace(CONVERSATION), seed=2).requests()]


def test_exact_arrivals_are_not_spread() -> None:
    """The sentence names the flag."""
    with pytest.raises(TraceError, match="are not rounded; leave out --spread-ticks"):
        spread_ticks(open_trace(AZURE_CODE), seed=1)


def test_whole_sessions_are_drawn() -> None:
    """The drawn sessions have all their turns; the others are counted."""
    everything = Counter(r.session_id for r in open_trace(CONVERSATION).requests())
    trace = draw_sessions(open_trace(CONVERSATION), 100, seed=3)
    drawn = Counter(r.session_id for r in trace.requests())
    assert len(drawn) == 100
    assert all(everything[name] == turns for name, turns in drawn.items())
    assert trace.report.count(Remark.NOT_SAMPLED) == 2321 - drawn.total()
    assert drawn != Counter(r.session_id for r in draw_sessions(open_trace(CONVERSATION), 100, seed=4).requests())
    assert len({r.session_id for r in draw_sessions(open_trace(CONVERSATION), 9999, seed=3).requests()}) == 1344


def bare(*prompts: tuple[int, list[int]]) -> Trace:
    """Make requests of tokens and blocks."""
    requests = [
        TraceRequest(f"line-{n}", 0, tokens, 1, block_ids=tuple(ids)) for n, (tokens, ids) in enumerate(prompts)
    ]
    return Trace(BARE, lambda: iter(requests))


def test_the_deepest_last_full_block_is_the_parent() -> None:
    """Block 0 joins nobody; a prompt below two full blocks is never continued; a second child is a branch."""
    trace = infer_sessions(
        bare(
            (1024, [0, 1]),  # a
            (1024, [0, 9]),  # b: shares the system prompt alone
            (1600, [0, 1, 2, 3]),  # a, after its first
            (1536, [0, 1, 7]),  # a, a branch from its first
            (2100, [0, 1, 2, 4, 5]),  # a, after 1600, whose last full block is 2
            (600, [5, 6]),  # c
            (1100, [5, 6, 8]),  # d: c has one full block only
            (1600, [0, 1, 2, 3]),  # the same prompt again: after the latest whose last full block is the deepest
        )
    )
    shape = [(r.session_id[-1], r.turn, r.after) for r in trace.requests()]
    assert shape == [
        ("0", 0, None),
        ("1", 0, None),
        ("0", 1, None),
        ("0", 2, 0),
        ("0", 3, 1),
        ("2", 0, None),
        ("3", 0, None),
        ("0", 4, 1),
    ]
    assert trace.info.sessions_inferred
    assert (trace.report.count(Remark.INFERRED), trace.report.count(Remark.BRANCHED)) == (4, 3)


def test_the_first_block_joins_nobody() -> None:
    """Not even where a producer gives it the id of another prompt's last block."""
    trace = infer_sessions(bare((1024, [3, 4]), (1024, [4, 9])))
    assert [r.session_id for r in trace.requests()] == ["inferred-0", "inferred-1"]


def test_the_latest_of_two_equal_prompts_is_continued() -> None:
    """A retry takes the place of what it repeats."""
    trace = infer_sessions(bare((1024, [0, 1]), (1024, [0, 1]), (1536, [0, 1, 2])))
    assert [(r.turn, r.after) for r in trace.requests()] == [(0, None), (1, None), (2, None)]


def test_traces_that_need_or_allow_no_inference(tmp_path: Path) -> None:
    """Recorded sessions stay; without global blocks there is nothing to infer from."""
    with pytest.raises(TraceError, match="records its sessions; leave out --infer-sessions"):
        infer_sessions(open_trace(CONVERSATION))
    with pytest.raises(TraceError, match="no global block ids"):
        infer_sessions(open_trace(json_lines(tmp_path / "t", [{"timestamp": 0, "input_length": 5}])))
