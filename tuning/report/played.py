"""The settings that the report's plots compare: HiCache off, HiCache on, and the winner, with their requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.load.record import read_records
from harness.metrics import answered, ttft_s
from harness.metrics.groups import by_tier
from harness.store import SAMPLES_FILE, Outcome, Purpose, TrialRecord, folder_of, requests_path
from harness.summary import span_s
from harness.window import Window, find_window
from scenarios.plan import Phase
from tuning.report.figure import BEST, OFF, ON
from tuning.study import BASELINES

PLAYED_OUT = (Outcome.MEASURED, Outcome.NOT_SUSTAINABLE)
"""Other trials were cut short or at fault themselves, and were tried again."""


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
    counted: pd.DataFrame
    """Every request of a counted session, as recorded; sessions of different seeds have different names."""
    windows: tuple[Window, ...]
    """The steady window of each trial."""
    seconds: float
    """How long the counted requests took, all trials together."""

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Columns `ttft_s` and `turn`, one row for each request that was answered."""
        answers = self.counted[answered(self.counted)]
        return pd.DataFrame({"ttft_s": ttft_s(answers), "turn": answers["turn"].astype(int).to_numpy()})

    @cached_property
    def tiers(self) -> npt.NDArray[np.str_]:
        """The tier that served each of `requests`, one of `harness.metrics.TIERS`."""
        divided = by_tier(self.counted[answered(self.counted)])
        return np.array(divided.labels)[divided.codes]


@dataclass(frozen=True)
class Watched:
    """One trial of a compared setting as its load went on."""

    setting: Played
    record: TrialRecord
    samples: pd.DataFrame
    requests: pd.DataFrame | None
    """All of them, warm-up and fillers too; None when they are not on disk."""


def played(root: Path, records: Sequence[TrialRecord], leader: str | None, *, confirmed: bool) -> list[Played]:
    """Return both baselines and the leading setting, as far as requests of them are on disk.

    The requests are those of the confirmation when it came to an end, so that all played the same sessions; else,
    and where it has none, those of the search.
    """
    purposes: tuple[Purpose, ...] = ("confirm", "search") if confirmed else ("search", "confirm")
    leading = "winner" if confirmed else "best so far"
    off, on = (baseline.key for baseline in BASELINES)
    roles = {off: "HiCache off", on: "HiCache on, defaults"}
    if leader in roles:
        roles[leader] += f" ({leading})"
    elif leader is not None:
        roles[leader] = leading
    found = []
    for key, role in roles.items():
        of_setting = [r for r in records if r.setting.key == key and r.outcome in PLAYED_OUT]
        groups = (_together(root, [r for r in of_setting if r.purpose == p], role, key == leader) for p in purposes)
        found += [setting for setting in groups if setting is not None][:1]
    return found


def colour_of(setting: Played) -> str:
    """Return the colour that the setting has in every plot."""
    return BEST if setting.leads else OFF if setting.role == "HiCache off" else ON


def watched(root: Path, settings: Sequence[Played]) -> list[Watched]:
    """Return the first trial of each setting whose samples are on disk."""
    found = []
    for setting in settings:
        for record in setting.records:
            path = folder_of(root, record.number, record.purpose) / SAMPLES_FILE
            if path.exists():
                loaded = requests(root, [record])
                found.append(Watched(setting, record, pd.read_parquet(path), loaded[1] if loaded else None))
                break
    return found


def requests(root: Path, records: Sequence[TrialRecord]) -> tuple[TrialRecord, pd.DataFrame] | None:
    """Return the first of `records` whose requests are on disk, with all of them: warm-up and fillers too."""
    for record in records:
        path = requests_path(root, record)
        if path.exists():
            return record, read_records(path)
    return None


def _together(root: Path, records: Sequence[TrialRecord], role: str, leads: bool) -> Played | None:
    found = [loaded for record in records if (loaded := requests(root, [record])) is not None]
    with_answers = [(record, frame) for record, frame in found if answered(_counted(frame)).any()]
    if not with_answers:
        return None
    counted = [_named(_counted(frame), record.seed) for record, frame in with_answers]
    return Played(
        role=role,
        label=records[0].setting.label,
        leads=leads,
        sustained=all(record.usable for record, _ in with_answers),
        records=tuple(record for record, _ in with_answers),
        counted=pd.concat(counted, ignore_index=True),
        windows=tuple(window for _, frame in with_answers if (window := find_window(frame)) is not None),
        seconds=sum(map(span_s, counted)),
    )


def _counted(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["phase"] == Phase.COUNTED]


def _named(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    return frame.assign(session_id=f"{seed}/" + frame["session_id"].astype(str))
