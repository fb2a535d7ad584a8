"""Which studies of old nights are removed, and what never is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.errors import StoreError
from tuning.nightly.retention import keep


def _study(results: Path, name: str) -> Path:
    (results / name / "trials" / "0000-search").mkdir(parents=True)
    (results / name / "study.json").write_text("{}")
    (results / name / "trials" / "0000-search" / "trial.json").write_text("{}")
    return results / name


def _days_ago(days: int, job: str = "chat") -> str:
    return f"{job}-{datetime.now(UTC) - timedelta(days=days):%Y%m%d}"


def _left(results: Path) -> set[str]:
    return {path.name for path in results.iterdir()}


def test_the_latest_nights_stay(tmp_path: Path) -> None:
    """By date, then by number (the tenth of a day comes after the second), whatever the files' times are."""
    names = ["chat-20261129", "chat-20261130-10", "chat-20261130-2-anew", "chat-20261130", "chat-20261130-2"]
    for name in names:
        _study(tmp_path, name)
    removed = keep(tmp_path, job="chat", nights=2)
    assert removed == [tmp_path / name for name in ("chat-20261130-2", "chat-20261130", "chat-20261129")]
    assert _left(tmp_path) == {"chat-20261130-10", "chat-20261130-2-anew"}
    assert keep(tmp_path, job="chat", nights=2) == []


def test_nights_that_are_too_old_go(tmp_path: Path) -> None:
    """Also when there are few of them; one of exactly that age stays."""
    for days in (0, 7, 8):
        _study(tmp_path, _days_ago(days))
    assert keep(tmp_path, job="chat", nights=10, days=7) == [tmp_path / _days_ago(8)]


def test_protected_nights_stay(tmp_path: Path) -> None:
    """The last good night may be needed, however old it is; it takes no other night's place."""
    for days in range(4):
        _study(tmp_path, _days_ago(days))
    removed = keep(tmp_path, job="chat", nights=2, days=1, protected=[_days_ago(3)])
    assert removed == [tmp_path / _days_ago(2)]


def test_what_is_no_night_of_the_job_stays(tmp_path: Path) -> None:
    """Other jobs, other studies, the job's own folder, and names that only look alike."""
    names = {
        "chat",
        "chat-other",
        "chat-20261101-by-hand",
        "chat-20261399",
        "chat-20261101-20261102",
        "chatx-20261101",
        "my-chat-20261101",
        "CHAT-20261101",
        "chat.20261101",
        "chat-٢٠٢٦١١٠١",
    }
    for name in names:
        _study(tmp_path, name)
    assert keep(tmp_path, job="chat", nights=0) == []
    assert _left(tmp_path) == names


def test_a_jobs_name_is_no_pattern(tmp_path: Path) -> None:
    """A dot in it is a dot."""
    _study(tmp_path, "gpt-4x1-20261101")
    assert keep(tmp_path, job="gpt-4.1", nights=0) == []


def test_what_is_no_study_stays(tmp_path: Path) -> None:
    """A folder without study.json, a file, and links of all kinds; nothing behind a link is touched."""
    results, elsewhere = tmp_path / "results", _study(tmp_path, "elsewhere")
    (results / "chat-20261101").mkdir(parents=True)
    (results / "chat-20261102").write_text("a file")
    (results / "chat-20261103").symlink_to(elsewhere)
    (results / "chat-20261104").mkdir()
    (results / "chat-20261104" / "study.json").symlink_to(elsewhere / "study.json")
    (results / ".removed-chat-20261105").symlink_to(elsewhere)
    before = _left(results)
    assert keep(results, job="chat", nights=0) == []
    assert _left(results) == before
    night = _study(results, "chat-20261106")
    (night / "plans").symlink_to(elsewhere)
    assert keep(results, job="chat", nights=0) == [night]
    assert (elsewhere / "trials" / "0000-search" / "trial.json").exists()


def test_a_killed_removal_leaves_no_half_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it is no study by name, and the next run removes it, even when a study has that name again."""
    _study(tmp_path, "chat-20261101")

    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(tmp_path, job="chat", nights=0)
    assert _left(tmp_path) == {".removed-chat-20261101"}
    _study(tmp_path, "chat-20261101")
    assert keep(tmp_path, job="other", nights=0) == []
    keep(tmp_path, job="chat", nights=0)
    assert _left(tmp_path) == set()


def test_one_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said in one sentence, after the rest is gone."""
    for name in ("chat-20261101", "chat-20261102"):
        _study(tmp_path, name)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name == "chat-20261102":
            raise PermissionError(13, "Permission denied", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match=r"chat-20261102 \(Permission denied\): .* cannot be removed"):
        keep(tmp_path, job="chat", nights=0)
    assert _left(tmp_path) == {"chat-20261102"}


def test_results_that_are_not_there(tmp_path: Path) -> None:
    """Nothing to remove before the first night."""
    assert keep(tmp_path / "results", job="chat", nights=1) == []
