"""The storage tier: whose folder it is, and that nothing else is ever emptied."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.engine.launch import ProcessLauncher
from harness.engine.setting import Setting
from harness.engine.spec import EngineSpec
from harness.engine.storage import STORAGE_FOLDER_VARIABLE, StorageTier
from harness.engine.surroundings import Surroundings
from harness.errors import ConfigError, StoreError

GB = 10**9
ON = Setting(hicache=True)
STORING = Setting(hicache=True, extra={"hicache-storage-backend": "file"})
FILE = Surroundings(fixed={"hicache-storage-backend": "file"})


def filled(tier: StorageTier) -> Path:
    """Store something in the tier."""
    tier.folder.mkdir(parents=True)
    stored = tier.folder / "page.bin"
    stored.write_bytes(b"kv")
    return stored


def test_only_the_file_backend_of_hicache_is_served(tmp_path: Path) -> None:
    """By the setting's own flag or by that of every launch."""
    assert StorageTier(tmp_path).serves(STORING)
    assert StorageTier(tmp_path, FILE).serves(ON)
    assert not StorageTier(tmp_path, FILE).serves(Setting(hicache=False))
    assert not StorageTier(tmp_path).serves(ON)
    assert not StorageTier(tmp_path).serves(Setting(hicache=True, extra={"hicache-storage-backend": "mooncake"}))


def test_it_lies_in_the_study(tmp_path: Path) -> None:
    """The engine is told where; a setting without the tier is told nothing."""
    tier = StorageTier(tmp_path / "s", env={})
    assert tier.variables(STORING) == {STORAGE_FOLDER_VARIABLE: str(tmp_path / "s" / "storage")}
    assert tier.variables(ON) == {}


def test_a_folder_that_the_user_names_is_not_ours(tmp_path: Path) -> None:
    """A folder within it is, another one for each study."""
    fast = tmp_path / "fast"
    tiers = [StorageTier(tmp_path / name / "s", env={STORAGE_FOLDER_VARIABLE: str(fast)}) for name in "ab"]
    theirs = fast / "somebody.bin"
    stored = [filled(tier) for tier in tiers]
    theirs.write_bytes(b"kv")
    assert tiers[0].empty(STORING) is True
    assert [path.exists() for path in (*stored, theirs)] == [False, True, True]


def test_disk_for_the_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder need not exist yet; the disk below it keeps 5 % free."""
    asked = list[Path]()

    def disk_usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(total=100 * GB, free=35 * GB)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    tier = StorageTier(tmp_path / "study", env={STORAGE_FOLDER_VARIABLE: str(tmp_path / "a" / "b")})
    tier.check_room(needed_bytes=30 * GB)
    with pytest.raises(ConfigError, match=r"has 30\.0 GB to give away and 31\.0 GB are needed; free space or name"):
        tier.check_room(needed_bytes=31 * GB)
    assert asked == [tmp_path, tmp_path]


def test_it_is_emptied(tmp_path: Path) -> None:
    """With all that is in it, and also when there is nothing."""
    tier = StorageTier(tmp_path, env={})
    assert tier.empty(STORING) is True
    stored = filled(tier)
    assert tier.empty(STORING) is True
    assert not stored.exists()


def test_it_is_kept_when_asked_or_not_in_use(tmp_path: Path) -> None:
    """The two are told apart: what is kept may be found by the next trial."""
    stored = filled(StorageTier(tmp_path, env={}))
    assert StorageTier(tmp_path, env={}, keep=True).empty(STORING) is False
    assert StorageTier(tmp_path, env={}).empty(ON) is None
    assert stored.exists()


def test_a_folder_that_cannot_be_emptied_is_told(tmp_path: Path) -> None:
    """A trial that would start warm is not measured; here a file is in the way."""
    (tmp_path / "storage").write_text("")
    with pytest.raises(StoreError, match=r"storage: the storage tier cannot be emptied \(Not a directory\)"):
        StorageTier(tmp_path, env={}).empty(STORING)


def test_a_launch_knows_the_folder(tmp_path: Path) -> None:
    """Beside the engine's own variables."""
    spec = EngineSpec(python=Path("p"), model="m", sglang_version="0.5.15", env={"A": "1"})
    plan = ProcessLauncher(spec, StorageTier(tmp_path, env={})).plan(STORING)
    assert dict(plan.env) == {"A": "1", STORAGE_FOLDER_VARIABLE: str(tmp_path / "storage")}
    assert dict(ProcessLauncher(spec).plan(STORING).env) == {"A": "1"}
