"""The settings that the report's plots compare: HiCache off, HiCache on, and the winner, with their requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.load.record import Status, read_records
from harness.store import REQUESTS_FILE, SAMPLES_FILE, TrialRecord, folder_of
from harness.summary import ttft_s
from scenarios.plan import Phase
from tuning.study import BASELINES


@dataclass(frozen=True)
class Played:
    """One setting with the role it has in the report."""

    role: str
    label: str
    leads: bool
    """Whether it is the winner, or the best so far."""
    sustained: bool
    """Whether every trial here may be compared; if not, its P99 is not shown as a number (design rule 12)."""
    records: tuple[TrialRecord, ...]
    requests: pd.DataFrame
    """Columns `ttft_s` and `turn`, one row for each answered request of a counted session."""


def played(root: Path, records: Sequence[TrialRecord], leader: str | None, *, confirmed: bool) -> list[Played]:
    """Return both baselines and the leading setting, as far as requests of them are on disk.

    The requests are those of the confirmation where there are any, else of the search.
    """
    leading = "winner" if confirmed else "best so far"
    off, on = (baseline.key for baseline in BASELINES)
    roles = {off: "HiCache off", on: "HiCache on, defaults"}
    if leader in roles:
        roles[leader] += f" ({leading})"
    elif leader is not None:
        roles[leader] = leading
    found = (_played(root, records, key, role, leads=key == leader) for key, role in roles.items())
    return [setting for setting in found if setting is not None]


def samples(root: Path, records: Sequence[TrialRecord]) -> tuple[TrialRecord, pd.DataFrame] | None:
    """Return the first of `records` whose samples are on disk, with them."""
    for record in records:
        path = folder_of(root, record.number, record.purpose) / SAMPLES_FILE
        if path.exists():
            return record, pd.read_parquet(path)
    return None


def _played(root: Path, records: Sequence[TrialRecord], key: str, role: str, *, leads: bool) -> Played | None:
    of_setting = [record for record in records if record.setting.key == key]
    for purpose in ("confirm", "search"):
        chosen = [record for record in of_setting if record.purpose == purpose]
        frames = [frame for record in chosen for frame in _answered(root, record)]
        if frames:
            return Played(
                role=role,
                label=chosen[0].setting.label,
                leads=leads,
                sustained=all(record.usable for record in chosen),
                records=tuple(chosen),
                requests=pd.concat(frames, ignore_index=True),
            )
    return None


def _answered(root: Path, record: TrialRecord) -> Iterator[pd.DataFrame]:
    path = folder_of(root, record.number, record.purpose) / REQUESTS_FILE
    if not path.exists():
        return
    frame = read_records(path)
    answered = frame[(frame["phase"] == Phase.COUNTED) & (frame["status"] == Status.OK)]
    if not answered.empty:
        yield pd.DataFrame({"ttft_s": ttft_s(answered), "turn": answered["turn"].astype(int).to_numpy()})
