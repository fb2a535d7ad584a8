"""Recorded traces of the test data, small ones made on the spot, and the figures that are counted on them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from scenarios.trace import Scope, Trace, TraceRequest
from tests.support.cases import DATA

TRACES = DATA / "traces"
CONVERSATION = TRACES / "mooncake-conversation.jsonl.xz"
SYNTHETIC = TRACES / "mooncake-synthetic.jsonl.xz"
CLAUDE_CODE = TRACES / "kv-cache-tester.jsonl.xz"
AZURE_CONV = TRACES / "azure-conv.csv.xz"
AZURE_CODE = TRACES / "azure-code.csv.xz"


def json_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Write rows as JSON lines; a string is a line as it stands."""
    text = "\n".join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def few_sessions(path: Path) -> Path:
    """Write the first eight Claude Code sessions to `path`; they have sub-agents."""
    with lzma.open(CLAUDE_CODE, "rt", encoding="utf-8") as file:
        return json_lines(path, [line.rstrip("\n") for line in islice(file, 8)])


def text_file(path: Path, *lines: str) -> Path:
    """Write lines."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def said(request: TraceRequest) -> list[tuple[str, str]]:
    """Return what a turn adds, as roles and texts, its reply last."""
    messages = [*request.messages, *([request.reply] if request.reply else [])]
    return [(message.role, message.text) for message in messages]


def infinite_hit_rate(trace: Trace) -> float:
    """Return the share of prompt tokens that an endless cache has: whole blocks in a row from the beginning."""
    seen: set[object] = set()
    hits = tokens = 0
    size = trace.info.block_tokens or 1
    for request in trace.requests():
        blocks = keys(trace, request)
        found = next((n for n, block in enumerate(blocks) if block not in seen), len(blocks))
        hits += min(found * size, request.input_tokens or 0)
        tokens += request.input_tokens or 0
        seen.update(blocks)
    return hits / tokens


def keys(trace: Trace, request: TraceRequest) -> Sequence[object]:
    """Return a request's blocks as they are told apart over the whole trace."""
    if trace.info.scope is Scope.LOCAL:
        return [(request.session_id, block) for block in request.block_ids]
    return request.block_ids
