"""Headroom and reload cost of recorded sessions, as tables of docs/reload-cost-h200.md: `python -m scripts.gpu.costs`.

Everything comes from the trials and requests in docs/evidence; trials of one setting are taken together.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from harness.engine.model_shape import kv_bytes_per_token
from harness.load.record import read_records
from harness.reload_cost import reload_cost
from harness.store import TrialRecord
from scenarios.plan import Phase
from scripts.gpu.model import CONFIG
from tuning.report import words
from tuning.report.costs import reload_cells

EVIDENCE = Path(__file__).parents[2] / "docs/evidence"
SESSIONS = {
    "h200-2026-11-30": "support-chat",
    "h200-2026-11-30b": "coding-agent",
    "h200-2026-11-30c-support-chat": "support-chat, two more settings",
    "h200-2026-11-30c-long-chat": "long-chat",
}
"""Folders, and the scenario that was played there."""


def tables() -> str:
    """Return a table for each recorded session."""
    return "\n".join(line for folder, scenario in SESSIONS.items() for line in _table(EVIDENCE / folder, scenario))


def _table(folder: Path, scenario: str) -> Iterator[str]:
    columns = [dict(_column(folder, found)) for found in _by_setting(folder)]
    names = list(dict.fromkeys(name for column in columns for name in column))
    yield f"### {scenario} ([evidence/{folder.name}](evidence/{folder.name}/README.md))"
    yield ""
    yield "| " + " | ".join(["", *(column.pop("setting") for column in columns)]) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in names:
        cells = [column.get(name, words.UNKNOWN) for column in columns]
        if name != "setting" and any(cell != words.UNKNOWN for cell in cells):
            yield "| " + " | ".join([name, *cells]) + " |"
    yield ""


def _by_setting(folder: Path) -> list[list[tuple[TrialRecord, pd.DataFrame]]]:
    found: dict[str, list[tuple[TrialRecord, pd.DataFrame]]] = defaultdict(list)
    for path in sorted((folder / "trials").glob("*.json")):
        record = TrialRecord.parse(json.loads(path.read_text(encoding="utf-8")), where=str(path))
        if record.usable:
            found[record.setting.key].append((record, read_records(folder / f"requests/{path.stem}.parquet")))
    return list(found.values())


def _column(folder: Path, found: Sequence[tuple[TrialRecord, pd.DataFrame]]) -> Iterator[tuple[str, str]]:
    records = [record for record, _ in found]
    frees = [record.headroom.device_bytes for record in records if record.headroom]
    hosts = [record.headroom.host_bytes for record in records if record.headroom]
    label = records[0].setting.label.removeprefix("HiCache ").replace(", fraction 0.12", "")
    yield "setting", label
    yield "trials", ", ".join(str(record.number) for record in records)
    yield "least device memory free, GiB", words.gib(min((free for free in frees if free is not None), default=None))
    yield "least host memory free, GiB", words.gib(min((free for free in hosts if free is not None), default=None))
    if not records[0].setting.hicache:
        return
    requests = pd.concat([_named(frame, record.seed) for record, frame in found], ignore_index=True)
    deltas = [record.cache for record in records if record.cache]
    yield from reload_cells(reload_cost(requests, *deltas, kv_bytes_per_token=kv_bytes_per_token(CONFIG)))


def _named(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Keep the counted requests; sessions of different seeds are different sessions."""
    counted = frame[frame["phase"] == Phase.COUNTED]
    return counted.assign(session_id=f"{seed}/" + counted["session_id"].astype(str))


if __name__ == "__main__":
    sys.stdout.write(tables())
