"""The nights of a job in one SQLite file: how each ended, under which conditions, and what production answered.

The file stands alone: it keeps the TTFT of each request of production, so that a night can be compared with an earlier
one whose study has been removed since.

History of the format (`user_version` of the file):
    1  first version
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import pandas as pd

from harness.errors import StoreError
from harness.telemetry.nightly_exporter import Night
from scenarios.strict import StrictModel
from tuning.nightly.conditions import Conditions

SCHEMA_VERSION = 1
APPLICATION_ID = 0x48544E4A
"""Marks the file as ours, so that another program's SQLite file is not written to."""
WAIT_S = 30.0
"""A reader may hold the file for a while."""
SCHEMA = """
CREATE TABLE nights (study TEXT PRIMARY KEY, job TEXT NOT NULL, started_at TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE answers (study TEXT NOT NULL, role TEXT NOT NULL, parquet BLOB NOT NULL, PRIMARY KEY (study, role));
"""
Role = Literal["production", "baseline"]


class HistoryError(StoreError):
    """Raised when the history cannot be read or written; the user mends, moves or frees what the message names."""


class NightRecord(StrictModel):
    """One night of one job."""

    job: str
    study: str
    started_at: datetime
    night: Night | None = None
    """What it has found; None while it runs, and when it was cut off."""
    sentence: str = ""
    exit_code: int | None = None
    conditions: Conditions | None = None
    """None when it failed before they were known."""
    notes: tuple[str, ...] = ()
    """What else a person should know, one sentence each, without a full stop."""
    accepted: bool = False
    """Whether a person has taken it as good, whatever it ended as."""
    proposal: Path | None = None
    report: Path | None = None

    @property
    def is_good(self) -> bool:
        """Whether later nights may be compared with it."""
        return self.night is not None and (self.accepted or self.night.outcome == "good")


class History:
    """An open history; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise HistoryError(f"{path}: its folder cannot be made ({problem.strerror}); name another file") from None
        with self._told():
            self._file = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
        try:
            self._settle()
        except HistoryError:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def nights(self, job: str) -> list[NightRecord]:
        """Return the nights of a job, the latest first."""
        with self._told():
            rows = self._file.execute(
                "SELECT record FROM nights WHERE job = ? ORDER BY started_at DESC, rowid DESC", (job,)
            )
            return [self._read(text) for (text,) in rows]

    def last_good(self, job: str) -> NightRecord | None:
        """Return the latest good night of a job."""
        return next((night for night in self.nights(job) if night.is_good), None)

    def write(self, record: NightRecord, answers: Mapping[Role, pd.DataFrame] | None = None) -> None:
        """Write a night, in place of what was there of it, with what the engine has answered; whole or not at all."""
        row = (record.study, record.job, record.started_at.isoformat(), record.model_dump_json())
        with self._told(), self._transaction():
            self._file.execute(
                "INSERT INTO nights VALUES (?, ?, ?, ?) ON CONFLICT (study) DO UPDATE SET record = excluded.record", row
            )
            for role, frame in (answers or {}).items():
                kept = (record.study, role, frame.to_parquet(index=False))
                self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", kept)

    def answers(self, study: str, role: Role) -> pd.DataFrame | None:
        """Return the TTFT of a night's requests, as `tuning.answers` has them; None when the role was not measured."""
        with self._told():
            question = "SELECT parquet FROM answers WHERE study = ? AND role = ?"
            row = self._file.execute(question, (study, role)).fetchone()
        return None if row is None else pd.read_parquet(BytesIO(row[0]))

    def _settle(self) -> None:
        """Make the tables of a new file; refuse what is damaged, newer, or not ours."""
        with self._told():
            sound = self._file.execute("PRAGMA quick_check(1)").fetchone()[0]
            version = int(self._file.execute("PRAGMA user_version").fetchone()[0])
            application = int(self._file.execute("PRAGMA application_id").fetchone()[0])
            tables = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if sound != "ok":
            raise self._damaged(sound.splitlines()[-1])
        if tables and application != APPLICATION_ID:
            raise HistoryError(f"{self._path}: not a history of nights; name another file")
        if version > SCHEMA_VERSION:
            raise HistoryError(f"{self._path}: written by a newer hicache-tune (format {version}); upgrade to go on")
        if not tables:
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
            with self._told():
                self._file.executescript(f"BEGIN; {SCHEMA} {marks} COMMIT;")

    def _read(self, text: str) -> NightRecord:
        try:
            return NightRecord.model_validate_json(text)
        except ValueError as problem:
            raise self._damaged(str(problem).splitlines()[0]) from None

    def _damaged(self, how: object) -> HistoryError:
        return HistoryError(
            f"{self._path}: damaged ({how}); restore it from a copy, or move it away to begin without earlier nights"
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself when the disk is full
                self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what SQLite raises into one sentence."""
        try:
            yield
        except sqlite3.OperationalError as problem:
            raise HistoryError(
                f"{self._path}: cannot be used ({problem}); free space, end who holds it, or name another file"
            ) from None
        except sqlite3.DatabaseError as problem:
            raise self._damaged(problem) from None
