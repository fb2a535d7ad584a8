"""A load that several processes play: how its sessions are dealt, and how what they did becomes one load again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from harness.errors import LoadError
from harness.files import write_atomically
from harness.load.job import ClientHealth, PhaseCounts
from harness.load.record import RequestRecord, read_records, write_records
from scenarios.plan import Phase, Plan
from scenarios.strict import StrictModel


class Played(StrictModel):
    """What one process says of the share that it has played, beside its records."""

    ended_ns: int
    counts: tuple[PhaseCounts, ...]
    client: ClientHealth
    locust_requests: int


def processes_of(plan: Plan, wanted: int) -> int:
    """Count the processes that can play `plan`: each needs a user at least."""
    return max(1, min(wanted, plan.slots))


def share_of(plan: Plan, index: int, processes: int) -> Plan:
    """Return what process `index` plays. Every session is in one share, whole, and shares keep the order of the plan.

    Slots are dealt to the processes in turn, and the sessions of each phase to the slots: a process with one slot more
    gets the sessions of one slot more.
    """
    sessions, dealt = [], Counter[Phase]()
    for session in plan.sessions:
        if dealt[session.phase] % plan.slots % processes == index:
            sessions.append(session)
        dealt[session.phase] += 1
    slots = None if plan.concurrency is None else len(range(index, plan.concurrency, processes))
    return replace(plan, concurrency=slots, sessions=tuple(sessions))


def write_share(folder: Path, index: int, played: Played, records: Sequence[RequestRecord]) -> None:
    """Leave what process `index` has done for `merge` to find."""
    write_records(records, _records_file(folder, index))
    write_atomically(_played_file(folder, index), played.model_dump_json())


def merge(folder: Path, processes: int) -> tuple[list[Played], pd.DataFrame]:
    """Put the records of all processes together, in the order in which requests ended, and remove the parts.

    Raises LoadError when a part is missing, or when there are not exactly the requests that the processes have counted.
    """
    played = [_read_played(_played_file(folder, index)) for index in range(processes)]
    records = pd.concat([read_records(_records_file(folder, index)) for index in range(processes)])
    records = records.sort_values("end_ns", kind="stable", ignore_index=True)
    counted = sum(counts.sent for share in played for counts in share.counts)
    twice = int(records.duplicated(["session_id", "turn"]).sum())
    if len(records) != counted or twice:
        raise LoadError(
            f"the load processes counted {counted} requests, but wrote {len(records)} records, {twice} of them twice; "
            f"run the load again, and keep {folder} to find out why"
        )
    for index in range(processes):
        _records_file(folder, index).unlink()
        _played_file(folder, index).unlink()
    return played, records


def add_counts(shares: Sequence[Sequence[PhaseCounts]]) -> tuple[PhaseCounts, ...]:
    """Add what became of the turns of each phase."""
    return tuple(_add(phase, [c for counts in shares for c in counts if c.phase is phase]) for phase in Phase)


def _add(phase: Phase, counts: Sequence[PhaseCounts]) -> PhaseCounts:
    names = [name for name in PhaseCounts.model_fields if name != "phase"]
    return PhaseCounts(phase=phase, **{name: sum(getattr(c, name) for c in counts) for name in names})


def _read_played(path: Path) -> Played:
    try:
        return Played.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        said = str(problem).splitlines()[0]
        raise LoadError(f"{path}: a load process left no result ({said}); run the load again") from None


def _records_file(folder: Path, index: int) -> Path:
    return folder / f"requests.{index}.parquet"


def _played_file(folder: Path, index: int) -> Path:
    return folder / f"load.{index}.json"
