"""Removes the studies of old nights. Their figures stay: the history of a job stands alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from harness.errors import StoreError
from tuning.config import STUDY_FILE

REMOVED = ".removed-"
"""Begins the name of a folder that is being removed, so that what is left of a study is never taken for a study."""


@dataclass(frozen=True, order=True)
class _Night:
    """One night by the name of its study; nights are in order."""

    date: date
    """In UTC."""
    number: int
    """Of the night among those of its date."""
    name: str


def keep(results: Path, *, job: str, nights: int, days: int | None = None, protected: Sequence[str] = ()) -> list[Path]:
    """Remove the studies of `job` but for its latest `nights`, and those over `days` days old; return what was removed.

    `protected` are names of studies that stay. So does what is no study of a night of this job: other names, folders
    without study.json, links. Raises StoreError when something could not be removed, after all else was.
    """
    oldest = date.min if days is None else datetime.now(UTC).date() - timedelta(days=days)
    latest_first = sorted(_nights(results, job), reverse=True)
    old = [night for place, night in enumerate(latest_first) if place >= nights or night.date < oldest]
    removed: list[Path] = []
    failures: list[str] = []
    for path in [*_begun(results, job), *(results / night.name for night in old if night.name not in protected)]:
        try:
            _remove(path)
            removed.append(path)
        except OSError as problem:
            failures.append(f"{problem.filename or path} ({problem.strerror})")
    if failures:
        raise StoreError(f"{failures[0]}: a study of an old night cannot be removed; make it writable, or remove it")
    return removed


def _remove(path: Path) -> None:
    if not path.name.startswith(REMOVED):
        path = path.rename(path.with_name(REMOVED + path.name))
    shutil.rmtree(path)  # it follows no links


def _nights(results: Path, job: str) -> Iterator[_Night]:
    for path in _folders(results):
        study = path / STUDY_FILE
        if (night := _night(path.name, job)) and study.is_file() and not study.is_symlink():
            yield night


def _begun(results: Path, job: str) -> Iterator[Path]:
    """Find what an earlier run began to remove when it was killed."""
    for path in _folders(results):
        if path.name.startswith(REMOVED) and _night(path.name.removeprefix(REMOVED), job):
            yield path


def _folders(results: Path) -> list[Path]:
    return [path for path in results.iterdir() if path.is_dir() and not path.is_symlink()] if results.is_dir() else []


def _night(name: str, job: str) -> _Night | None:
    """Read `JOB-YYYYMMDD`, `JOB-YYYYMMDD-2` and these with `-anew`; None for any other name."""
    match = re.fullmatch(rf"{re.escape(job)}-(\d{{8}})(?:-(\d{{1,3}}))?(?:-anew)?", name, re.ASCII)
    try:
        return _Night(date.fromisoformat(match[1]), int(match[2] or 1), name) if match else None
    except ValueError:
        return None
