"""Our readers on samples of public traces: the figures that were counted on the same files by other means."""

from __future__ import annotations

import itertools
import json
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from scenarios.infer_sessions import infer_sessions
from scenarios.readers import open_trace
from scenarios.reading_report import Remark
from scenarios.trace import Clock, Scope
from tests.support.traces import (
    AZURE_CODE,
    AZURE_CONV,
    CLAUDE_CODE,
    CONVERSATION,
    SYNTHETIC,
    infinite_hit_rate,
    json_lines,
)

pytestmark = pytest.mark.contract

ADDED = ("session_id", "turn", "parent")
"""What the samples have beyond Mooncake's own fields: the sessions that were inferred from the full file."""


def rows(path: Path) -> list[dict[str, int | list[int] | str]]:
    """Read a sample without our readers."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize(
    ("path", "requests", "sessions", "hit_rate", "step_s"),
    [(CONVERSATION, 2321, 1344, 0.468, 3.0), (SYNTHETIC, 3993, 2549, 0.651, None)],
    ids=["conversation", "synthetic"],
)
def test_mooncake(path: Path, requests: int, sessions: int, hit_rate: float, step_s: float | None) -> None:
    """Requests, sessions and the hit rate of an endless cache are the published ones."""
    trace = open_trace(path)
    read = list(trace.requests())
    assert (trace.info.format, trace.info.clock, trace.info.scope) == ("mooncake", Clock.TRACE, Scope.GLOBAL)
    assert (trace.info.block_tokens, trace.info.at_step_s) == (512, step_s)
    assert (len(read), trace.report.requests, trace.report.skipped) == (requests, requests, [])
    assert len({request.session_id for request in read}) == sessions
    assert infinite_hit_rate(trace) == pytest.approx(hit_rate, abs=0.0005)
    raw = rows(path)
    assert [request.input_tokens for request in read] == [row["input_length"] for row in raw]
    assert [list(request.block_ids) for request in read] == [row["hash_ids"] for row in raw]


@pytest.mark.parametrize(("path", "shrinking"), [(CONVERSATION, None), (SYNTHETIC, 533)])
def test_sessions_are_inferred_as_from_the_full_file(path: Path, shrinking: int | None, tmp_path: Path) -> None:
    """Without the added fields, every request gets the session and the depth that were found in the full file.

    How many prompts are shorter than their parent's was published for the full files, one of which is the sample.
    """
    raw = rows(path)
    bare = [{key: value for key, value in row.items() if key not in ADDED} for row in raw]
    found = list(infer_sessions(open_trace(json_lines(tmp_path / "bare.jsonl", bare))).requests())
    # The same grouping, whatever the names.
    names = [(ours.session_id, str(theirs["session_id"])) for ours, theirs in zip(found, raw, strict=True)]
    assert len(set(names)) == len({ours for ours, _ in names}) == len({theirs for _, theirs in names})
    # The depth in the tree of parents, and with whom each request goes on.
    lengths: dict[tuple[str, int], int] = {}
    depth: dict[tuple[str, int], int] = {}
    shrank = 0
    for request, row in zip(found, raw, strict=True):
        after = request.turn - 1 if request.after is None else request.after
        depth[request.session_id, request.turn] = 1 + depth.get((request.session_id, after), 0)
        assert depth[request.session_id, request.turn] == row["turn"]
        lengths[request.session_id, request.turn] = request.input_tokens or 0
        shrank += lengths.get((request.session_id, after), 0) > (request.input_tokens or 0)
    assert shrinking in (None, shrank)


def test_inferred_multi_turn_sessions_of_the_synthetic_trace(tmp_path: Path) -> None:
    """299 sessions have more than one turn; they make 43.7 % of the requests, with 5, 10 and 20 turns at p50/90/99."""
    bare = [{key: value for key, value in row.items() if key not in ADDED} for row in rows(SYNTHETIC)]
    trace = infer_sessions(open_trace(json_lines(tmp_path / "bare.jsonl", bare)))
    turns = np.array(list(Counter(request.session_id for request in trace.requests()).values()))
    several = turns[turns > 1]
    assert (len(turns), len(several), turns.max()) == (2549, 299, 24)
    assert several.sum() / turns.sum() == pytest.approx(0.437, abs=0.0005)
    assert np.percentile(several, [50, 90, 99]).round().tolist() == [5, 10, 20]


def test_kv_cache_tester() -> None:
    """104 sessions of 4,117 entries: 4,112 requests of their own, and 5 sub-agents with 52 requests."""
    trace = open_trace(CLAUDE_CODE)
    read = list(trace.requests())
    assert (trace.info.format, trace.info.clock, trace.info.scope) == ("kv-cache-tester", Clock.SESSION, Scope.LOCAL)
    assert trace.info.block_tokens == 64
    assert len({request.session_id for request in read}) == 104
    assert len(read) == 4112 + 52
    assert trace.report.count(Remark.SUBAGENT) == 5
    assert trace.report.count(Remark.DUPLICATE) == 0
    raw = rows(CLAUDE_CODE)
    entries = [entry for row in raw for entry in row["requests"]]  # type: ignore[union-attr]
    assert len(entries) == 4117
    for _, turns in itertools.groupby(read, key=lambda request: request.session_id):
        times = [request.at_s for request in turns if request.at_s is not None]
        assert times == sorted(times)


def test_kv_cache_tester_reuses_nearly_all_of_a_context() -> None:
    """From the second request of a session on, the median request finds 99 % of its prompt in the session's blocks."""
    seen: dict[str, set[int]] = {}
    shares = []
    for request in open_trace(CLAUDE_CODE).requests():
        known = seen.setdefault(request.session_id, set())
        blocks = request.block_ids
        found = next((n for n, block in enumerate(blocks) if block not in known), len(blocks))
        if request.turn:
            shares.append(found * 64 / (request.input_tokens or 1))
        known.update(blocks)
    assert np.median(shares) == pytest.approx(0.99, abs=0.01)


@pytest.mark.parametrize(
    ("path", "requests", "seconds", "inputs", "outputs"),
    [
        (AZURE_CONV, 19366, 3502, (1020, 2735, 4142, 14050), (129, 424, 601, 1000)),
        (AZURE_CODE, 8819, 3436, (1469, 5188, 7436, 7437), (13, 55, 251, 1899)),
    ],
    ids=["conv", "code"],
)
def test_azure(path: Path, requests: int, seconds: int, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    """Requests, duration and the percentiles of lengths (50, 90, 99, 100) are the published ones."""
    trace = open_trace(path)
    read = list(trace.requests())
    assert (trace.info.format, trace.info.clock, trace.info.sessions_recorded) == ("azure-llm", Clock.TRACE, False)
    assert len(read) == len({request.session_id for request in read}) == requests
    assert read[-1].at_s == pytest.approx(seconds, abs=1)
    for values, expected in (
        ([request.input_tokens for request in read], inputs),
        ([request.output_tokens for request in read], outputs),
    ):
        assert np.percentile(np.array(values), [50, 90, 99, 100]) == pytest.approx(expected, abs=0.5)


def test_azure_dates_keep_their_fractions() -> None:
    """18:15:46.6805900 and 18:15:50.9951690 are 4.314579 s apart."""
    first, second, *_ = open_trace(AZURE_CONV).requests()
    assert (first.at_s, first.line) == (0.0, 2)
    assert second.at_s == pytest.approx(4.314579, abs=1e-6)
