"""Atomic writes: the old or the new content, never a part."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.errors import StoreError
from harness.files import write_atomically


def test_the_content_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    """Folders are made, text is kept as it is, and no temporary file stays."""
    path = tmp_path / "a" / "b.json"
    write_atomically(path, "old")
    write_atomically(path, "nouveau — 新\r\n")
    assert path.read_bytes() == "nouveau — 新\r\n".encode()
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_keeps_the_old_content(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, at whichever step it shows, is told with the path and leaves the file as it was."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "b.json"
    write_atomically(path, "old")
    monkeypatch.setattr(os if step == "fsync" else Path, step, full)
    with pytest.raises(StoreError, match=r"b\.json: cannot be written \(No space left on device\); free space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["b.json"]


def test_a_reader_never_sees_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the last step the old content is in place, whole."""
    path = tmp_path / "b.json"
    write_atomically(path, "old")
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(path.read_text()))
    write_atomically(path, "new")
    assert seen == ["old"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A file where a folder should be is no traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/b\.json: cannot be written"):
        write_atomically(tmp_path / "file" / "b.json", "new")
