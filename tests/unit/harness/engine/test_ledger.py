"""Whose processes are ours: by pid, start and boot; and what a killed run left behind."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.engine import ledger
from harness.engine.ledger import Ledger, Owned, end
from harness.engine.process import EngineProcess
from harness.errors import StoreError
from tests.support.processes import SLEEP, alive, foreign, wait_for, with_child


def test_a_session_is_known_by_its_leader() -> None:
    """Pid, start and boot together name it; the members are its living processes, leader first."""
    with foreign(with_child(SLEEP, SLEEP)) as leader:
        owned = Owned.of(leader.pid)
        assert owned == Owned.of(leader.pid)
        members = [process.pid for process in owned.members()]
        assert members[0] == leader.pid
        assert len(members) == 2
        assert os.getpid() not in members
        end(owned, term_s=0)
        assert owned.members() == []


@pytest.mark.parametrize("change", [{"started": 0.01}, {"started": 1e12}, {"boot": "another"}])
def test_a_reused_pid_is_never_signalled(change: dict[str, object]) -> None:
    """A process with the recorded pid, but another start or boot, is somebody else's."""
    with foreign() as stranger:
        owned = replace(Owned.of(stranger.pid), **change)  # type: ignore[arg-type]  # one field by name
        assert owned.members() == []
        assert end(owned, term_s=0, kill_s=0.1) == 0
        assert alive(stranger.pid)


def test_a_foreign_session_without_leader_is_not_ours() -> None:
    """Members that are older than the leader we recorded, or of another boot, are of another session of that id."""
    with foreign(with_child(SLEEP, "pass")) as leader:
        owned = Owned.of(leader.pid)
        leader.wait()
        (child,) = owned.members()
        for theirs in (replace(owned, started=owned.started + 1000), replace(owned, boot="another")):
            assert theirs.members() == []
            assert end(theirs, term_s=0, kill_s=0.1) == 0
        assert alive(child.pid)
        end(owned, term_s=0)


def test_the_start_does_not_move_with_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who sets the clock moves the time of boot; the recorded session stays ours."""
    with foreign() as leader:
        owned = Owned.of(leader.pid)
        boot_time, create_time = psutil.boot_time(), psutil.Process(leader.pid).create_time()
        monkeypatch.setattr(psutil, "boot_time", lambda: boot_time + 3600.25)
        monkeypatch.setattr(psutil.Process, "create_time", lambda _: create_time + 3600.25)
        assert Owned.of(leader.pid) == owned


def test_an_ended_leader_counts_no_more() -> None:
    """A zombie holds nothing; its exit code stays for whoever started it."""
    with foreign("print('up')") as leader:
        owned = Owned.of(leader.pid)
        wait_for(lambda: not alive(leader.pid), "end of the leader")
        assert owned.members() == []
        assert end(owned, term_s=0) == 0
        assert leader.wait() == 0


def test_orphans_of_a_killed_run_are_ended(tmp_path: Path) -> None:
    """A later run reads the file, ends exactly the recorded session, and forgets it."""
    path = tmp_path / "running.json"
    with foreign(with_child(SLEEP, SLEEP)) as orphan, foreign() as stranger:
        Ledger(path).record(Owned.of(orphan.pid))
        assert Ledger(path).end_orphans(term_s=0.1) == 2
        assert orphan.wait() == -15
        assert alive(stranger.pid)
        assert not path.exists()
        assert Ledger(path).end_orphans() == 0


def test_an_orphan_that_does_not_end_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays as long as a process of it lives."""
    path = tmp_path / "running.json"
    monkeypatch.setattr(ledger, "end", lambda *_, **__: 0)
    with foreign() as orphan:
        Ledger(path).record(Owned.of(orphan.pid))
        assert Ledger(path).end_orphans() == 1
        assert path.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"pid": 1}', '{"pid": 1, "started": 2.0}'])
def test_a_ledger_that_says_nothing_ends_nothing(text: str, tmp_path: Path) -> None:
    """An empty, damaged or older file names no process, so none is touched."""
    (tmp_path / "running.json").write_text(text)
    assert Ledger(tmp_path / "running.json").end_orphans() == 0


def test_a_reboot_forgets(tmp_path: Path) -> None:
    """What ran before the last boot does not run now, whoever has its pid."""
    path = tmp_path / "running.json"
    with foreign() as stranger:
        Ledger(path).record(replace(Owned.of(stranger.pid), boot="another"))
        assert Ledger(path).end_orphans() == 0
        assert alive(stranger.pid)
    assert not path.exists()


def test_scratch_is_empty_and_goes_with_the_session(tmp_path: Path) -> None:
    """Another one for each study, readable by nobody else, and short enough for the names of sockets."""
    one, other = Ledger(tmp_path / "one" / "running.json"), Ledger(tmp_path / "other" / "running.json")
    assert one.scratch != other.scratch
    (one.make_scratch() / "left").write_text("")
    assert list(one.make_scratch().iterdir()) == []
    assert one.scratch.stat().st_mode & 0o777 == 0o700
    assert len(one.scratch.name) < 40
    one.clear()
    assert not one.scratch.exists()


def test_scratch_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of somebody else's is written to."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    book = Ledger(tmp_path / "running.json")
    book.scratch.write_text("")
    with pytest.raises(
        StoreError, match=r"cannot be made \(File exists\); remove it, or name another folder in TMPDIR"
    ):
        book.make_scratch()


def test_the_launched_engine_is_what_the_ledger_names(tmp_path: Path) -> None:
    """A second harness ends the engine that the first has launched, and removes its temporary files."""
    path = tmp_path / "running.json"
    engine = EngineProcess.launch(
        [sys.executable, "-c", SLEEP], env={}, port=1, log_path=tmp_path / "log", book=Ledger(path)
    )
    assert Ledger(path).scratch.exists()
    assert Ledger(path).end_orphans() == 1
    assert not Ledger(path).scratch.exists()
    assert engine.stop().clean
