"""What several tests of whole trials need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import draft
from tests.support.trial_bench import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bench whose verdict does not depend on how busy this machine is; nothing may be left behind."""
    monkeypatch.setattr(draft, "SATURATED_CPU", float("inf"))
    monkeypatch.setattr(draft, "SATURATED_LAG_MS", float("inf"))
    monkeypatch.setattr(draft, "SATURATED_LATE_MS", float("inf"))
    made = Bench(tmp_path / "study")
    yield made
    assert made.left_behind() == []
