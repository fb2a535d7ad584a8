"""The history of a job: what was written is read, and what cannot be read is said in a sentence."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from harness.telemetry.nightly_exporter import Measured, Night
from tuning.nightly.history import SCHEMA_VERSION, History, HistoryError, NightRecord

FIRST = datetime(2026, 11, 1, 1, 0, tzinfo=UTC)
ANSWERS = pd.DataFrame({"session": ["1/a", "1/a"], "turn": [0, 1], "ttft_s": [0.25, 0.5]})


def night(day: int, outcome: str = "good", *, job: str = "chat", accepted: bool = False) -> NightRecord:
    """Make a night of a job."""
    found = Night(outcome, 1e9, 60.0, {"gpu": "H200"}, production=Measured("HiCache off", 0.5, 0.4, 0.6, {"host": 1}))
    started_at = FIRST + timedelta(days=day)
    return NightRecord(job=job, study=f"{job}-{day}", started_at=started_at, night=found, accepted=accepted)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name the file of a history, whose folder is not there yet."""
    return tmp_path / "chat" / "history.sqlite"


def test_nights_are_read_as_they_were_written_the_latest_first(path: Path) -> None:
    """Those of another job are not among them."""
    nights = [night(1), night(2, "regression"), night(1, job="other")]
    with History(path) as history:
        for record in nights:
            history.write(record)
    with History(path) as history:
        assert history.nights("chat") == [nights[1], nights[0]]


def test_answers_are_kept_with_the_night(path: Path) -> None:
    """They are those of the last writing, and None for a role that was not measured."""
    with History(path) as history:
        history.write(night(1), {"production": ANSWERS.assign(ttft_s=9.0)})
        history.write(night(1), {"production": ANSWERS})
        found = history.answers("chat-1", "production")
        assert found is not None
        pd.testing.assert_frame_equal(found, ANSWERS, check_dtype=False)
        assert history.answers("chat-1", "baseline") is None


def test_the_last_good_night_is_good_or_accepted(path: Path) -> None:
    """An unfinished night and a regression are passed over; an accepted regression is not."""
    with History(path) as history:
        for record in (night(1), night(2, "regression"), night(3).model_copy(update={"night": None})):
            history.write(record)
        assert history.last_good("chat") == night(1)
        history.write(night(2, "regression", accepted=True))
        assert history.last_good("chat") == night(2, "regression", accepted=True)


def test_a_night_that_is_written_again_keeps_its_place(path: Path) -> None:
    """Two nights that began at the same moment stay in the order in which they began."""
    first, second = night(1), night(1).model_copy(update={"study": "chat-1-2"})
    with History(path) as history:
        for record in (first, second, first):
            history.write(record)
        assert [record.study for record in history.nights("chat")] == ["chat-1-2", "chat-1"]


def test_a_damaged_file_says_so_when_it_is_opened(path: Path) -> None:
    """Not after hours of measuring; and nothing of it is overwritten."""
    with History(path) as history:
        for day in range(200):
            history.write(night(day), {"production": ANSWERS})
    data = bytearray(path.read_bytes())
    data[5000:9000] = b"\xff" * 4000
    path.write_bytes(data)
    with pytest.raises(HistoryError, match=r"history\.sqlite: damaged \(.*; restore it from a copy, or move it away"):
        History(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be read as one" * 20, b"SQLite format 3"])
def test_a_file_that_is_no_database_is_damaged(path: Path, content: bytes) -> None:
    """Whatever it holds."""
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=r"damaged \(file is not a database\)"):
        History(path)


def test_a_newer_file_is_refused(path: Path) -> None:
    """It is not written to."""
    History(path).__exit__(None, None, None)
    file = sqlite3.connect(path)
    file.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    file.close()
    with pytest.raises(HistoryError, match=r"written by a newer hicache-tune \(format 2\); upgrade to go on"):
        History(path)


def test_another_programs_file_is_refused(path: Path) -> None:
    """A path that was mistyped costs nobody a table."""
    path.parent.mkdir()
    file = sqlite3.connect(path)
    file.execute("CREATE TABLE theirs (x)")
    file.close()
    with pytest.raises(HistoryError, match="not a history of nights; name another file"):
        History(path)


def test_a_record_that_cannot_be_read_is_named(path: Path) -> None:
    """The file and what is wrong with it."""
    with History(path) as history:
        history.write(night(1))
    file = sqlite3.connect(path)
    with file:
        file.execute("UPDATE nights SET record = '{}'")
    file.close()
    with History(path) as history, pytest.raises(HistoryError, match=r"history\.sqlite: damaged \("):
        history.nights("chat")


def test_a_full_disk_loses_nothing(path: Path) -> None:
    """The night that did not fit is not there, in whole or in part; those before it are."""
    with History(path) as history:
        history.write(night(1))
        pages = history._file.execute("PRAGMA page_count").fetchone()[0]
        history._file.execute(f"PRAGMA max_page_count = {pages}")
        large = pd.DataFrame({"session": [f"1/{n}" for n in range(9999)], "turn": 0, "ttft_s": 0.1})
        with pytest.raises(HistoryError, match=r"cannot be used \(database or disk is full\); free space"):
            history.write(night(2), {"production": large})
    with History(path) as history:
        assert history.nights("chat") == [night(1)]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "chat").touch()
    with pytest.raises(HistoryError, match=r"history\.sqlite: its folder cannot be made \(File exists\)"):
        History(tmp_path / "chat" / "history.sqlite")
