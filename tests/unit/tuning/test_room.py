"""What a study asks of this machine before its first launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.engine.spec import EngineSpec
from harness.engine.storage import StorageTier
from harness.engine.surroundings import FlagValue, Surroundings
from scenarios import load_scenario
from tuning import room
from tuning.config import Search
from tuning.room import check_machine
from tuning.space import Ranges

MODEL = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
BYTES_PER_TOKEN = 2 * 2 * 2 * 64 * 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """The folders and bytes for which disk was asked; nothing is looked at, and nothing swaps."""
    found: list[tuple[Path, int]] = []
    monkeypatch.setattr(
        StorageTier, "check_room", lambda tier, *, needed_bytes: found.append((tier.folder, needed_bytes))
    )
    monkeypatch.setattr(room, "check_swap", lambda _: None)
    return found


def check(fixed: dict[str, FlagValue], *searched: str, **changes: Any) -> None:
    """Check the machine for a search with these engine flags of every launch, and these searched ones."""
    scenario = load_scenario("support-chat")
    given = {"engine": "local", "model": "m", "scenario": scenario, "api": scenario.api, "seed": 1, "constraints": ()}
    search = Search.parse({**given, "space": Ranges().space(searched), "load_limit_s": 60, **changes}, where="here")
    spec = EngineSpec(
        python=Path("p"), model="m", sglang_version="0.5.15", around=Surroundings(fixed=fixed), config=MODEL
    )
    check_machine(search, spec, Path("/study"), unique_tokens=1000)


@pytest.mark.parametrize(
    ("fixed", "searched"),
    [
        ({"hicache-storage-backend": "file"}, ()),
        ({}, ("hicache-storage-backend=file,mooncake",)),
    ],
)
def test_disk_is_asked_for_where_the_study_stores(
    asked: list[tuple[Path, int]], fixed: dict[str, FlagValue], searched: tuple[str, ...]
) -> None:
    """By a flag of every launch or a searched one: the KV of every token of the load, in the study's folder."""
    check(fixed, *searched)
    assert asked == [(Path("/study/storage"), 1000 * BYTES_PER_TOKEN)]


@pytest.mark.parametrize(
    ("fixed", "searched", "engine"),
    [
        ({}, (), "local"),
        ({"hicache-storage-backend": "mooncake"}, (), "local"),
        ({"hicache-storage-backend": "file"}, (), "docker"),
    ],
)
def test_none_is_asked_for_where_nothing_is_stored_here(
    asked: list[tuple[Path, int]], fixed: dict[str, FlagValue], searched: tuple[str, ...], engine: str
) -> None:
    """No tier, one of another kind, or one in a container's own file system."""
    check(fixed, *searched, engine=engine)
    assert asked == []
